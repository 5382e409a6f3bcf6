"""What the block tracer's samples say of reads and writes behind discards."""

from __future__ import annotations

from opwatch.trim.audit.live import Stalled, stalled
from tests.unit.support.samples import Op, sample


def waited(count: int, sum_ns: int, max_ns: int) -> Op:
    return Op(
        [1000] * count,
        scalars={"behind": count, "behind_sum_ns": sum_ns, "behind_max_ns": max_ns},
    )


def test_what_waited_between_two_samples() -> None:
    begin = sample(0, read=waited(2, 1000, 700), write=waited(5, 9000, 4000))
    end = sample(1, read=waited(5, 7000, 3000), write=waited(5, 9000, 4000))
    assert stalled(begin, end) == (Stalled("read", 3, 2000.0, 3000),)


def test_nothing_waited() -> None:
    same = sample(0, read=waited(2, 1000, 700))
    assert stalled(same, same) == ()
