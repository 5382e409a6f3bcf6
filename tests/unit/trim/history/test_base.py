"""The kernel's count at the start of a history, and requests that the recording missed."""

from __future__ import annotations

import random

import pytest

from opwatch.trim.history.witness import Base


@pytest.mark.parametrize("seed", range(40))
def test_base_is_found_and_no_loss_goes_unnoticed(seed: int) -> None:
    """Requests are recorded first and counted later, with polls in any order."""
    rng = random.Random(seed)
    truth = rng.randrange(1000)
    kernel = truth + rng.choice((0, 3))
    before = truth
    base = Base(before, kernel)
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
            assert base.look(kernel, recorded)
        else:
            kernel += sum(waiting)
            waiting.clear()
            assert base.narrow(kernel, settled)
            settled = recorded
        assert base.high is not None
        assert base.low <= truth <= base.high
    kernel += sum(waiting)
    assert base.look(kernel, recorded) and base.narrow(kernel, recorded) and base.narrow(kernel, recorded)
    assert (base.low, base.slack) == (truth, 0)
    # One request is missed.
    kernel += 1
    assert not base.look(kernel, recorded)
    assert base.slack is None
    assert base.narrow(kernel, recorded) and base.narrow(kernel, recorded)
    assert base.slack == 0


def test_requests_the_kernel_did_not_count_are_noticed() -> None:
    base = Base(100, 100)
    assert base.look(110, 10)
    assert all(base.narrow(110, 20) for _ in range(19))
    assert not base.narrow(110, 20)
    assert (base.low, base.high) == (90, None)


def test_late_counts_of_the_kernel_are_not_a_loss() -> None:
    base = Base(100, 200)
    for kernel, recorded in ((150, 45), (150, 40), (150, 50), (150, 50)):
        assert base.look(150, 50) and base.narrow(kernel, recorded)
    assert base.slack == 0
    for _ in range(100):
        assert base.narrow(150, 60)  # ten sectors are in flight
        assert base.look(160, 60) and base.narrow(160, 60)
    assert (base.low, base.high) == (100, 100)
