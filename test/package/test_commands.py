"""Each command is installed where `ros2 run` looks, explains itself, and without its needs says so in one line."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from oxygen_ros.commands import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
LIBEXEC = ROOT / ".venv" / "colcon" / "install" / "lib" / "oxygen_ros"
BARE = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LD_LIBRARY_PATH")}


def test_no_other_command_is_installed():
    assert {file.name for file in LIBEXEC.iterdir()} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    result = subprocess.run([LIBEXEC / command, "--help"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"usage: {command} ")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_word_too_many_is_one_line(command):
    result = subprocess.run([LIBEXEC / command, "--nonsense"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2 and result.stdout == ""
    assert result.stderr.startswith(f"{command}: ") and result.stderr.endswith(f"; see {command} --help\n")
    assert result.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def workstation(tmp_path_factory):
    """Make an environment as `pip install .` does, with neither ROS nor torch; return its bin folder.

    The dependencies are linked rather than installed: a test should not need the network.
    """
    folder = tmp_path_factory.mktemp("workstation")
    source = folder / "source"  # pip builds in place
    not_ours = shutil.ignore_patterns(".*", "__pycache__", "out", "build", "test")
    shutil.copytree(ROOT, source, ignore=not_ours)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, "."], cwd=source, check=True
    )
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], env=BARE, check=True)
    ours = Path(sysconfig.get_path("purelib"))
    theirs = next((folder / "env" / "lib").glob("python3.*/site-packages"))
    for pattern in ("numpy*", "PIL", "pillow*", "yaml", "_yaml", "safetensors", "sentencepiece*", "tokenizers"):
        for path in ours.glob(pattern):
            (theirs / path.name).symlink_to(path)
    return python.parent


@pytest.mark.parametrize("command, missing", [("oxygen-node", "rclpy"), ("oxygen-verify", "torch")])
def test_without_its_needs_it_names_interpreter_package_and_remedy(workstation, command, missing):
    result = subprocess.run([workstation / command], env=BARE, cwd="/", capture_output=True, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith(f"{command}: {workstation / 'python'} has no Python package '{missing}'; ")
    assert {"rclpy": "ROS 2", "torch": "pip install torch"}[missing] in result.stderr


@pytest.mark.parametrize("code, said", [
    ("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')", [
        "has no Python package 'torch'", "-m pip install torch"]),
    ("raise ImportError('libcudart.so.12:\\n  cannot open')", [
        "cannot import its Python package 'torch': libcudart.so.12: cannot open", "built for this interpreter"]),
    ("import ctypes; ctypes.CDLL('libnobody.so.9')", [
        "cannot import its Python package 'torch': libnobody.so.9: cannot open", "built for this interpreter"]),
    ("raise AttributeError('_ARRAY_API not found')", [
        "cannot import its Python package 'torch': _ARRAY_API not found", "for this interpreter"]),
], ids=["missing", "broken", "library", "numpy"])
def test_a_node_with_rclpy_but_without_a_torch_that_works_says_so(tmp_path, code, said):
    """F57"""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(code)
    path = f"{tmp_path}:{os.environ['PYTHONPATH']}"
    result = subprocess.run(
        [LIBEXEC / "oxygen-node"], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 1
    assert (result.stdout, result.stderr.count("\n")) == ("", 1)
    assert result.stderr.startswith("oxygen-node: ") and sys.executable in result.stderr
    for part in said:
        assert part in result.stderr


def test_what_a_command_raises_while_it_runs_is_no_broken_package(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["oxygen-node"])
    monkeypatch.setattr("oxygen_ros.node.main.main", (tmp_path / "nowhere").read_text)
    with pytest.raises(FileNotFoundError):
        main()
