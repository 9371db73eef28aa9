"""When the first action of a chunk is due."""

from __future__ import annotations


class Motion:
    """Whether the robot is still moving on an earlier chunk when the next one comes. Times are ROS time in ns."""

    def __init__(self) -> None:
        self._run: int | None = None
        self._from_ns, self._until_ns = 0, -1

    def moving(self, run: int, now_ns: int) -> bool:
        """Whether the next chunk of this run joins the last one."""
        return run == self._run and self.under_way(now_ns)

    def resting(self, now_ns: int) -> bool:
        """Whether it is being held where it was stopped."""
        return self._run is None and self.under_way(now_ns)

    def under_way(self, now_ns: int) -> bool:
        """Whether the last chunk, or hold, is still being executed."""
        # A clock that went back, as that of a bag played again, is a standstill too.
        return self._from_ns <= now_ns <= self._until_ns

    def rest(self, now_ns: int, length_ns: int) -> None:
        """A hold takes the last chunk's place."""
        self._run, self._from_ns, self._until_ns = None, now_ns, now_ns + length_ns

    def start_ns(self, run: int, stamp_ns: int, now_ns: int, length_ns: int) -> int:
        """Start of a chunk that lasts `length_ns`, was computed from what was seen at `stamp_ns`, and is published now.

        While the robot moves that is `stamp_ns`: what latency has overtaken is skipped, and the seam is smooth. From
        standstill (another run, or a gap longer than the chunk before) it is now: nothing is skipped, no arm jumps.
        """
        start_ns = stamp_ns if self.moving(run, now_ns) else now_ns
        self._run, self._from_ns, self._until_ns = run, now_ns, start_ns + length_ns
        return start_ns
