"""One loaded policy for all tests of replay, and what it says of the sample."""

from dataclasses import replace

import pytest
from bags import ROOT, beginning, write_mcap
from evaluating import SECONDS, report, said

from oxygen_ros.replay.evaluate import load_side
from oxygen_ros.parameter_file import load_settings


@pytest.fixture(scope="session")
def side():
    return load_side("oxygen", replace(load_settings(ROOT / "config" / "aloha.yaml"), denoise_steps=2))


@pytest.fixture(scope="session")
def plain(side, tmp_path_factory):
    """Of a copy by mcap's own writer; what a bag's last message is decides where its last tick is."""
    return said(report(write_mcap(tmp_path_factory.mktemp("plain") / "x.mcap", beginning(SECONDS)), side))
