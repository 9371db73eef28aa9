"""The compiled code as a file: which instruction sets it has, and one that is for another machine."""

import pytest

import oxygen_ros
from oxygen_ros import kernels


def test_an_instruction_set_that_is_not_here():
    with pytest.raises(ValueError, match="no compiled code for AVX-1024 runs here, only for .*baseline"):
        kernels.use("AVX-1024")


def test_a_library_of_another_machine_is_told_and_done_without(tmp_path, monkeypatch):
    (tmp_path / kernels.LIBRARY).write_bytes(b"\x7fELF of another machine")
    monkeypatch.setattr(oxygen_ros, "__path__", [str(tmp_path)])
    with pytest.warns(UserWarning, match=f"compiled code is not used.*{kernels.LIBRARY}.*build the package anew"):
        assert kernels.library.__wrapped__() is None
