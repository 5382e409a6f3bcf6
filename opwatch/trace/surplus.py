"""The surplus of a disk: requests that the kernel counted and the tracer did not, from before attach."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.trace.stat import StatSample
from opwatch.trace.trust import GROUPS, Reading

# A group of the kernel's statistics, and the unit: requests or bytes.
Key = tuple[str, str]
_KEYS: dict[str, tuple[Key, Key]] = {group: ((group, "requests"), (group, "bytes")) for group in GROUPS}


def compute_surplus(reading: Reading, witness: StatSample) -> dict[Key, int]:
    """Return the kernel's counts minus the tracer's, by group and unit.

    The two started counting at different times, so only comparisons of two surpluses are meaningful.
    """
    surpluses, counted = {}, reading.count_groups()
    for group, (of_requests, of_bytes) in _KEYS.items():
        requests, bytes_ = counted[group]
        if group in witness.requests:
            surpluses[of_requests] = witness.requests[group] - requests
        if group in witness.bytes:
            surpluses[of_bytes] = witness.bytes[group] - bytes_
    return surpluses


@dataclass(frozen=True, slots=True)
class SurplusBounds:
    """Lower and upper bounds of a disk's surplus.

    The surplus is constant as long as nothing is lost, so every reading limits it. Completions during a
    reading widen the bounds; on an idle disk both bounds are equal.
    """

    least: dict[Key, int]
    most: dict[Key, int]

    def narrow(self, other: SurplusBounds) -> SurplusBounds:
        """Return the bounds after another reading of the same disk and tracer. A contradicting reading is
        ignored, because it means that requests were lost since."""
        if other.least == self.least and other.most == self.most:
            return self
        least, most = dict(self.least), dict(self.most)
        for key, low in self.least.items():
            high = self.most[key]
            if key in other.least and other.least[key] <= high and low <= other.most[key]:
                least[key] = max(low, other.least[key])
                most[key] = min(high, other.most[key])
        return SurplusBounds(least, most)


def narrow_bounds(known: SurplusBounds | None, reading: Reading) -> SurplusBounds | None:
    """Return the bounds after another reading, or None if the first reading had no witness."""
    more = compute_bounds(reading)
    return known.narrow(more) if known and more else known


def compute_bounds(reading: Reading) -> SurplusBounds | None:
    """Return the bounds from one reading, or None without a witness.

    The kernel counts a request after the tracer: the first witness includes at most the traced requests, the
    second includes all of them.
    """
    if reading.before is None or reading.after is None:
        return None
    least = compute_surplus(reading, reading.before)
    if reading.before.has_same_counts(reading.after):
        return SurplusBounds(least, least)
    most = compute_surplus(reading, reading.after)
    return SurplusBounds(least, {key: max(count, most.get(key, count)) for key, count in least.items()})
