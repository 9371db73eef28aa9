"""`pip install .` on a workstation: the ROS-free rooms and their commands. A robot builds with colcon."""

import re
import runpy
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
VERSION = re.search(r"<version>(.+)</version>", (HERE / "package.xml").read_text()).group(1)
COMMANDS = runpy.run_path(str(HERE / "oxygen_ros" / "commands.py"))["COMMANDS"]


def share(*rooms: str) -> "list[tuple[str, list[str]]]":
    """List the files of the rooms, folder by folder, for the place where colcon puts them too."""
    found = [file.relative_to(HERE) for room in rooms for file in sorted((HERE / room).rglob("*")) if file.is_file()]
    files = [file for file in found if "__pycache__" not in file.parts]
    folders = sorted({file.parent for file in files})
    return [(f"share/oxygen_ros/{folder}", [str(f) for f in files if f.parent == folder]) for folder in folders]


setup(
    name="oxygen_ros",
    version=VERSION,
    description="A pi0.5 robot policy as a ROS 2 node: actions and language from one prefill per frame",
    license="Apache-2.0",
    python_requires=">=3.10",
    packages=find_packages(include=["oxygen_ros", "oxygen_ros.*"]),
    data_files=[("share/ament_index/resource_index/packages", ["resource/oxygen_ros"])]
    + [("share/oxygen_ros", ["package.xml"]), *share("launch", "config", "msg", "resource")],
    # torch is not here: which one suits a machine, its user knows best.
    install_requires=[
        "lz4>=3.1",
        "mcap>=1.1",
        "numpy>=1.24",
        "pillow>=9.4",
        "pyyaml>=5.4",
        "rosbags>=0.10",
        "safetensors>=0.4",
        "sentencepiece>=0.1.99",
        "tokenizers>=0.15.2",
        "zstandard>=0.15",
    ],
    extras_require={
        "torch": ["torch>=2.5"],
        "sim": ["gym-aloha>=0.1.1", "mujoco>=3.1"],
        "bench": ["matplotlib>=3.8"],
        "ray": ["ray>=2.9"],
    },
    entry_points={"console_scripts": [f"{command} = oxygen_ros.commands:main" for command in COMMANDS]},
)
