"""One loaded policy for all tests of replay."""

from dataclasses import replace

import pytest
from bags import ROOT

from oxygen_ros.replay.evaluate import load_side
from oxygen_ros.settings import from_yaml


@pytest.fixture(scope="session")
def side():
    return load_side("oxygen", replace(from_yaml(ROOT / "config" / "aloha.yaml"), denoise_steps=2))
