"""The set-up refuses in one line what it cannot do, keeps a torch that is there, and pins what setup.py allows."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
BOOTSTRAP = ROOT / "scripts" / "bootstrap.py"


def refusal(script, **environment):
    """Run the set-up, which must end at once, and return its one line."""
    result = subprocess.run(
        [sys.executable, script], env={**os.environ, **environment}, capture_output=True, text=True, timeout=30
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_folder_with_a_blank_is_refused(tmp_path):
    folder = tmp_path / "my robots" / "scripts"
    folder.mkdir(parents=True)
    line = refusal(shutil.copy(BOOTSTRAP, folder))
    assert "blank" in line and str(folder.parent) in line


def test_a_missing_compiler_is_named(tmp_path):
    assert refusal(BOOTSTRAP, PATH=str(tmp_path), CXX="no-such-compiler") == (
        "setup: there is no C++ compiler: apt install g++\n"
    )


@pytest.fixture
def bootstrap():
    spec = importlib.util.spec_from_file_location("bootstrap", BOOTSTRAP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def distribution(folder, name, version):
    """Write what makes a folder of sys.path hold a distribution."""
    information = folder / f"{name}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_a_torch_in_the_environment_is_kept(bootstrap, tmp_path):
    bootstrap.SITE = tmp_path
    distribution(tmp_path, "torch", "2.6.0+cu124")
    bootstrap.find_torch("no-such-torch")
    assert [path.name for path in tmp_path.iterdir()] == ["torch-2.6.0+cu124.dist-info"]


def test_a_torch_too_old_is_refused(bootstrap, tmp_path):
    bootstrap.SITE = tmp_path
    distribution(tmp_path, "torch", "2.4.1")
    with pytest.raises(SystemExit, match="torch 2.4.1, 2.5 is needed"):
        bootstrap.find_torch("no-such-torch")


def test_a_torch_of_the_base_python_is_used(bootstrap, tmp_path, monkeypatch):
    bootstrap.SITE = tmp_path / "site"
    bootstrap.SITE.mkdir()
    distribution(tmp_path / "jetson", "torch", "2.7.0")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "jetson")])
    bootstrap.find_torch("no-such-torch")
    assert (bootstrap.SITE / "torch_of_base_python.pth").read_text() == f"{tmp_path / 'jetson'}\n"


def test_the_pins_are_within_what_setup_py_allows():
    lines = re.findall(r'^        "([a-z]+[><=].*)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
    allowed = [Requirement(line) for line in lines]
    pinned = (ROOT / "requirements" / "runtime.txt").read_text().splitlines()
    pins = [Requirement(line) for line in pinned if "==" in line]
    assert {"numpy", "pillow", "safetensors", "sentencepiece"} <= {requirement.name for requirement in allowed}
    for requirement in allowed:
        versions = [next(iter(pin.specifier)).version for pin in pins if pin.name == requirement.name]
        assert versions, f"{requirement.name} is not pinned"
        assert all(map(requirement.specifier.contains, versions)), requirement
