"""Threads that contend make new arenas of glibc's heap; a limit holds them to so many."""

import platform
import subprocess
import sys

import pytest

CONTENDING = """
import ctypes, sys, threading
from oxygen_ros.node.heap import give_back, limit_arenas

if sys.argv[2] != "none":
    limit_arenas(int(sys.argv[2]))
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
started = threading.Barrier(6)

def allocate():
    started.wait()
    for _ in range(1000):
        libc.malloc(64)  # (ctypes lets go of Python's lock meanwhile)

threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
give_back()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
assert libc.malloc_info(0, file) == 0
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's")
def test_contending_threads_share_the_arenas_allowed(tmp_path):
    def arenas(limit: str) -> int:
        report = tmp_path / f"{limit}.xml"
        subprocess.run([sys.executable, "-c", CONTENDING, str(report), limit], check=True, timeout=60)
        return report.read_text().count("<heap nr=")

    assert arenas("none") > 2
    assert arenas("2") == 2
