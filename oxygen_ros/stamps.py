"""Times and durations of ROS messages, whoever decoded them, as whole nanoseconds."""

from __future__ import annotations

from typing import Protocol


class SecondsAndNanoseconds(Protocol):
    """builtin_interfaces/Time or Duration: of rclpy, or of a recording's own definitions."""

    sec: int
    nanosec: int


def nanoseconds(time: SecondsAndNanoseconds) -> int:
    return time.sec * 1_000_000_000 + time.nanosec
