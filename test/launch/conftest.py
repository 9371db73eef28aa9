"""One DDS domain for each test, and launches that end with it."""

import sys
from pathlib import Path

import pytest
from launching import Launch

from oxygen_ros.children import claim_domain

sys.path.append(str(Path(__file__).parents[1] / "node"))  # for robot.py


@pytest.fixture
def domain():
    return claim_domain()


@pytest.fixture
def launch(domain):
    launches = []

    def start(*arguments: str, **options) -> Launch:
        launches.append(Launch(domain, *arguments, **options))
        return launches[-1]

    yield start
    for each in launches:
        each.close()
