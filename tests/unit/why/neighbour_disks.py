"""A disk with two owners, one of which comes and goes."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterable, Sequence

from opwatch.owners.cells import OwnerKey, OwnerKind
from opwatch.why.neighbours import NeighbourEffect, compare_neighbours
from opwatch.why.witnessed import OwnedOp, OwnerSeries, WitnessedDisk

S = 10**9
US = 1000.0


def make_owner(name: str, counts: Iterable[float], times: Iterable[float]) -> OwnerSeries:
    """Return an owner of reads with these completions and device times per interval."""
    count, device_ns = array("d", counts), array("d", times)
    sizes, flushes = array("d", (4096 * one for one in count)), array("d", bytes(8 * len(count)))
    return OwnerSeries(name, sizes, device_ns, count, flushes, ops={"read": OwnedOp(count, device_ns)})


def make_disk(owners: Sequence[OwnerSeries]) -> WitnessedDisk:
    disk = WitnessedDisk("sda", "sda")
    for at in range(len(owners[0].requests)):
        disk.begins_ns.append(at * S)
        disk.ends_ns.append((at + 1) * S)
    disk.owners = {OwnerKey(OwnerKind.CGROUP, number): one for number, one in enumerate(owners)}
    return disk


def draw_disk(
    seed: int,
    *,
    seconds: int = 300,
    lasting: float = 0.6,
    added_ns: float = 0.0,
    burst: int = 20,
    name: str = "backup",
) -> WitnessedDisk:
    """Return a disk on which the reads of `db` take 100 µs, and `added_ns` more beside the other owner.

    Each second's deviation of 10 % keeps the share `lasting` of the last one's.
    """
    rng = random.Random(seed)
    deviation, active, left = rng.gauss(0, 0.1), False, 0.0
    counts, times, others = list[float](), list[float](), list[float]()
    for _ in range(seconds):
        if left <= 0:
            active, left = not active, burst * rng.uniform(0.5, 1.5)
        left -= 1
        deviation = lasting * deviation + rng.gauss(0, 0.1 * math.sqrt(1 - lasting**2))
        count = float(rng.randrange(500, 1500))
        counts.append(count)
        times.append(count * (100 * US * (1 + deviation) + (added_ns if active else 0.0)))
        others.append(500.0 if active else 0.0)
    return make_disk(
        [make_owner("db", counts, times), make_owner(name, others, (2e6 * one for one in others))]
    )


def find_effect(disk: WitnessedDisk, of: str = "db") -> NeighbourEffect:
    [found] = [one for one in compare_neighbours(disk).effects if one.of == of]
    return found
