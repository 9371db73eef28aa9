"""The README says what is there: every parameter, every command, every topic of the node."""

import re
import subprocess
import sys
from pathlib import Path

import yaml

from oxygen_ros.commands import COMMANDS
from oxygen_ros.declaration import declared
from oxygen_ros.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_parameter_table_is_that_of_the_settings():
    check = subprocess.run(
        [sys.executable, ROOT / "scripts" / "write_parameter_table.py", "--check"], capture_output=True, text=True
    )
    assert check.returncode == 0, check.stderr


def test_every_command_is_listed_and_no_other():
    assert set(re.findall(r"^\| `(oxygen-[a-z-]+)", README, re.M)) == set(COMMANDS)


def test_links_lead_somewhere():
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if "://" not in link]
    assert links and [link for link in links if not (ROOT / link).exists()] == []


def test_defaults_in_the_table_are_yaml_that_can_be_copied():
    written = dict(re.findall(r"^\| `([a-z_.]+)` \| `(.*?)` \|", README, re.M))
    for declaration in declared(Settings):
        assert declaration.checked(yaml.safe_load(written[declaration.name])) == declaration.default
