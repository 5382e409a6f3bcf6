"""The kernel's count at the start of a history, and requests that the recording missed."""

from __future__ import annotations

import random

import pytest

from opwatch.trim.history.counter_base import CounterBase


@pytest.mark.parametrize("seed", range(40))
def test_base_is_found_and_every_loss_is_noticed(seed: int) -> None:
    """Requests are recorded first and counted later, with polls in any order."""
    rng = random.Random(seed)
    truth = rng.randrange(1000)
    kernel = truth + rng.choice((0, 3))
    before = truth
    base = CounterBase(before, kernel)
    # Requests between the two readings of the kernel's count were not recorded.
    truth = kernel
    recorded = settled = 0
    waiting: list[int] = []
    for _ in range(300):
        what = rng.random()
        if what < 0.4:
            waiting.append(rng.randrange(1, 9))
            recorded += waiting[-1]
        elif what < 0.7 and waiting:
            kernel += waiting.pop(rng.randrange(len(waiting)))
        elif what < 0.9:
            assert base.raise_bound(kernel, recorded)
        else:
            kernel += sum(waiting)
            waiting.clear()
            assert base.narrow_high(kernel, settled)
            settled = recorded
        assert base.high is not None
        assert base.low <= truth <= base.high
    kernel += sum(waiting)
    assert (
        base.raise_bound(kernel, recorded)
        and base.narrow_high(kernel, recorded)
        and base.narrow_high(kernel, recorded)
    )
    assert (base.low, base.slack) == (truth, 0)
    # One request is missed.
    kernel += 1
    assert not base.raise_bound(kernel, recorded)
    assert base.slack is None
    assert base.narrow_high(kernel, recorded) and base.narrow_high(kernel, recorded)
    assert base.slack == 0


def test_requests_the_kernel_did_not_count_are_noticed() -> None:
    base = CounterBase(100, 100)
    assert base.raise_bound(110, 10)
    assert all(base.narrow_high(110, 20) for _ in range(19))
    assert not base.narrow_high(110, 20)
    assert (base.low, base.high) == (90, None)


def test_late_counts_of_the_kernel_are_not_a_loss() -> None:
    base = CounterBase(100, 200)
    for kernel, recorded in ((150, 45), (150, 40), (150, 50), (150, 50)):
        assert base.raise_bound(150, 50) and base.narrow_high(kernel, recorded)
    assert base.slack == 0
    for _ in range(100):
        assert base.narrow_high(150, 60)  # ten sectors are in flight
        assert base.raise_bound(160, 60) and base.narrow_high(160, 60)
    assert (base.low, base.high) == (100, 100)
