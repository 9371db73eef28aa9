"""A network of one's own, on a machine that others use too."""

import subprocess
import sys

import pytest

from oxygen_ros import children


def test_no_two_processes_have_one_domain_until_one_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(children.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(children, "_DOMAINS", range(1, 4))
    monkeypatch.setattr(children, "_claims", [])
    program = (
        "import sys, tempfile\nfrom oxygen_ros import children\n"
        f"tempfile.tempdir, children._DOMAINS = {str(tmp_path)!r}, range(1, 4)\n"
        "print(children.claim_domain(), flush=True)\nsys.stdin.read()\n"
    )
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    theirs = int(other.stdout.readline())
    assert {children.claim_domain(), children.claim_domain()} == {1, 2, 3} - {theirs}
    with pytest.raises(RuntimeError, match="from 1 to 3 are taken: set ROS_DOMAIN_ID"):
        children.claim_domain()
    other.communicate()
    assert children.claim_domain() == theirs
