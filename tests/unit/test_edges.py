from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opwatch.edges import LONGEST_NS, edges, refresh_ns, settled, stale_bytes

SECOND = 10**9


def polls(period_s: int, seconds: int, phase_s: int = 0) -> list[tuple[int, int]]:
    """A page that shows what had been written at its last refresh, polled each second."""
    return [(t * SECOND, (t + phase_s) // period_s * 1000) for t in range(seconds)]


@given(st.integers(2, 60), st.integers(0, 59))
def test_the_period_is_learned_and_never_underrated(period: int, phase: int) -> None:
    learned = refresh_ns(edges(polls(period, period * 8, phase)))
    assert learned is not None
    assert period * SECOND <= learned <= (period + 1) * SECOND


def test_too_few_changes_teach_nothing() -> None:
    assert refresh_ns(edges(polls(10, 40))) is None


def test_an_edge_lies_between_two_polls() -> None:
    [edge] = edges([(1, 5), (2, 5), (3, 7), (4, 7)])
    assert (edge.before_ns, edge.mono_ns, edge.value) == (2, 3, 7)


def test_settled_is_a_whole_period_without_change() -> None:
    still = [(t * SECOND, 5) for t in range(20)]
    assert settled(still, 10 * SECOND)
    assert not settled(still, None)
    assert not settled([*still, (20 * SECOND, 6)], 10 * SECOND)
    assert not settled([], SECOND)
    assert settled([(0, 1), (LONGEST_NS, 1)], None)


def test_what_an_old_page_may_lack() -> None:
    assert stale_bytes(600 * SECOND, 1e9) >= 600 * 10**9
    assert stale_bytes(0, 1e9) == stale_bytes(SECOND, 0) == 0
