"""When the first action of a chunk is due (F35), also on a clock that jumps."""

import pytest

from oxygen_ros.motion import Motion

S = 10**9


@pytest.mark.parametrize("run, now, expected", [
    (0, 1.5, "stamp"),  # moving on the chunk before
    (0, 2.0, "stamp"),  # its very end
    (0, 2.1, "now"),  # a gap longer than the chunk
    (1, 1.5, "now"),  # stopped in between
    (0, 0.5, "now"),  # the clock went back, as that of a bag that begins again
])
def test_second_chunk(run, now, expected):
    motion = Motion()
    assert motion.start_ns(run=0, stamp_ns=S * 9 // 10, now_ns=S, length_ns=S) == S
    now_ns = int(now * S)
    stamp_ns = now_ns - S // 10
    start = motion.start_ns(run=run, stamp_ns=stamp_ns, now_ns=now_ns, length_ns=S)
    assert start == {"stamp": stamp_ns, "now": now_ns}[expected]


def test_moving_lasts_from_the_start_of_the_chunk_not_from_its_publication():
    motion = Motion()
    motion.start_ns(run=0, stamp_ns=0, now_ns=S, length_ns=S)
    assert motion.start_ns(run=0, stamp_ns=S, now_ns=S * 3 // 2, length_ns=S) == S  # due from 1 s to 2 s
    assert motion.start_ns(run=0, stamp_ns=S * 2, now_ns=S * 21 // 10, length_ns=S) == S * 21 // 10
