"""What needs no ROS is imported without it."""

import subprocess
import sys

import pytest

BLOCKED = "rclpy", "std_msgs", "sensor_msgs", "builtin_interfaces", "oxygen_ros.msg"


@pytest.mark.parametrize("module", ["replay.main", "replay.bag", "frames", "policy", "bench.main", "checkpoint.convert"])
def test_imported_without_ros(module):
    block = "".join(f"sys.modules[{name!r}] = None; " for name in BLOCKED)
    subprocess.run([sys.executable, "-c", f"import sys; {block}import oxygen_ros.{module}"], check=True, timeout=60)
