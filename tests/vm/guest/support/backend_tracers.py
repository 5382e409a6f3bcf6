"""Several backends on the same disks at once, and the difference between their readings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain, repeat

from opwatch.host.device import Devices
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.derive import derive_interval
from opwatch.trace.hist import Histogram
from opwatch.trace.tracing import Tracer
from opwatch.trace.trust import account_losses
from tests.kernel.support.watching import REST_S, Watched


@dataclass(frozen=True)
class BackendTracers:
    """Tracers of the same leaves, by backend name."""

    tracers: dict[str, Tracer]

    def run_workload(self, workload: Callable[[], object]) -> dict[str, dict[str, Watched]]:
        """Run the workload and return each backend's counts of each disk."""
        first = {name: (one.read_settled(REST_S), one.read_misses()) for name, one in self.tracers.items()}
        workload()
        by_backend: dict[str, dict[str, Watched]] = {}
        for name, one in self.tracers.items():
            then, before = first[name]
            now, after = one.read_settled(REST_S), one.read_misses()
            misses = None if before is None or after is None else after - before
            by_backend[name] = {
                leaf.device.name: Watched(derive_interval(a.sample, b.sample), account_losses(a, b, misses))
                for leaf, a, b in zip(one.leaves, then, now, strict=True)
            }
        return by_backend


@contextmanager
def attach_backends(disks: Sequence[str], backends: Sequence[str]) -> Iterator[BackendTracers]:
    """Attach all the backends and yield their tracers."""
    leaves, _ = choose_leaves(Devices(), disks)
    with ExitStack() as stack:
        tracers: dict[str, Tracer] = {}
        for name in backends:
            tracers[name] = attach_tracer(name, leaves)
            stack.callback(tracers[name].close)
        yield BackendTracers(tracers)


def _iter_slots(histogram: Histogram) -> Iterator[int]:
    """Yield the slot of each value, in order."""
    return chain.from_iterable(repeat(slot, count) for slot, count in enumerate(histogram.slot_counts))


def compute_near_share(one: Histogram, other: Histogram) -> float:
    """Return the share of values, paired by rank, that are at most one slot apart in the two histograms."""
    if one.total != other.total:
        raise ValueError(f"{one.total} values and {other.total} cannot be held against each other")
    near = sum(abs(a - b) <= 1 for a, b in zip(_iter_slots(one), _iter_slots(other), strict=True))
    return near / one.total if one.total else 1.0


def count_distant_values(one: Histogram, other: Histogram) -> int:
    """Return a lower bound of how many values are more than a slot apart, however they are paired.

    A value that is far off shifts the ranks of others, but adds only one here."""
    if one.total != other.total:
        raise ValueError(f"cannot pair {one.total} values with {other.total}")
    # The number of values below each slot, and below the end.
    ours, theirs = ([0, *accumulate(each.slot_counts)] for each in (one, other))
    return sum(
        max(0, *(more - fewer for more, fewer in zip(left, right[1:], strict=False)))
        for left, right in ((ours, theirs), (theirs, ours))
    )
