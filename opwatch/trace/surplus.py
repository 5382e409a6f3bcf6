"""What the kernel counted of a disk and its tracer did not: all that ended before the tracer was there."""

from __future__ import annotations

from opwatch.frozen import frozen
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import GROUPS, Reading

# A group of the kernel's statistics, and what is counted of it: requests or bytes.
Key = tuple[str, str]
_KEYS: dict[str, tuple[Key, Key]] = {group: ((group, "requests"), (group, "bytes")) for group in GROUPS}


def surplus(reading: Reading, witness: StatSample) -> dict[Key, int]:
    """What the kernel counted and the tracer did not, by group and unit. Both count from a moment of their
    own, so that only two of these mean something."""
    surpluses, counted = {}, reading.counted()
    for group, (of_requests, of_bytes) in _KEYS.items():
        requests, bytes_ = counted[group]
        if group in witness.requests:
            surpluses[of_requests] = witness.requests[group] - requests
        if group in witness.bytes:
            surpluses[of_bytes] = witness.bytes[group] - bytes_
    return surpluses


@frozen
class SurplusBounds:
    """Between which numbers the surplus of a disk lies. It stays the same as long as nothing is lost, so that
    every reading says something of it: what ended while one was taken makes it less sure of itself, and at
    rest the two are the same."""

    least: dict[Key, int]
    most: dict[Key, int]

    def narrowed(self, other: SurplusBounds) -> SurplusBounds:
        """The bounds that are left after another reading of the same disk and tracer. One that contradicts
        says of something else: that requests were lost since."""
        if other.least == self.least and other.most == self.most:
            return self
        least, most = dict(self.least), dict(self.most)
        for key, low in self.least.items():
            high = self.most[key]
            if key in other.least and other.least[key] <= high and low <= other.most[key]:
                least[key] = max(low, other.least[key])
                most[key] = min(high, other.most[key])
        return SurplusBounds(least, most)


def narrowed(known: SurplusBounds | None, reading: Reading) -> SurplusBounds | None:
    """What is known of it after a further reading. Without a first witness nothing is."""
    more = bounds(reading)
    return known.narrowed(more) if known and more else known


def bounds(reading: Reading) -> SurplusBounds | None:
    """What one reading says of it, None without a witness. The kernel counts what was traced before: at the
    first witness no more than that, and at the second all of it."""
    if reading.before is None or reading.after is None:
        return None
    least = surplus(reading, reading.before)
    if reading.before.counts_as(reading.after):
        return SurplusBounds(least, least)
    most = surplus(reading, reading.after)
    return SurplusBounds(least, {key: max(count, most.get(key, count)) for key, count in least.items()})
