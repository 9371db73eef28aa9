"""Policy folders to spoil: copies of the tiny reference in both layouts."""

import shutil
import sys
from pathlib import Path

import pytest
import torch

REFERENCE = Path(__file__).parents[1] / "reference" / "pi05_tiny_a"
sys.path.append(str(Path(__file__).parents[1] / "pi05"))  # for plain.py, the network written the long way

LEROBOT_FILES = ("config.json", "model.safetensors", "policy_preprocessor.json", "policy_postprocessor.json",
                 "policy_preprocessor_step_3_normalizer_processor.safetensors",
                 "policy_postprocessor_step_0_unnormalizer_processor.safetensors", "dims.json")


@pytest.fixture(autouse=True)
def one_thread():
    """Of networks this small a second thread makes nothing faster, and on a busy machine everything slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def lerobot_folder(tmp_path):
    """As LeRobot 0.6.1 wrote it."""
    folder = tmp_path / "lerobot"
    folder.mkdir()
    for name in LEROBOT_FILES:
        shutil.copyfile(REFERENCE / name, folder / name)
    return folder


@pytest.fixture
def openpi_folder(tmp_path):
    """As openpi wrote it."""
    folder = tmp_path / "openpi"
    shutil.copytree(REFERENCE / "openpi", folder)
    shutil.copyfile(REFERENCE / "dims.json", folder / "dims.json")
    return folder


@pytest.fixture(params=["lerobot", "openpi"])
def folder(request):
    """Either of them."""
    return request.getfixturevalue(f"{request.param}_folder")
