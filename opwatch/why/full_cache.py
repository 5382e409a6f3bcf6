"""A full pseudo-SLC cache: sequential writes are fast at first, and slow until the drive was idle. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from opwatch import units
from opwatch.why.candidate import CHANCE, Candidate, CauseName
from opwatch.why.slowness import Slowness
from opwatch.why.waits import explain_busy_cpus, explain_doubt

SEQUENTIAL = 0.7
# Without idle times: the drop of the rate, and the least number of slow intervals in a row.
_DROP, _LASTING = 0.75, 10
_MIN_SPELLS = 3
# Most of a spell after its first slow interval is slow; the last interval is a part of one.
_MOSTLY_SLOW = 0.75
# The bytes that the cache took deviate by less, as mean absolute logarithm.
_MAX_SPREAD = 0.35
_CHECK = "let the drive idle for some minutes, and write again: the same bytes must pass before the drop"


@dataclass(frozen=True, slots=True)
class _Spell:
    """Intervals with requests between two idle ones: their number, the slow ones, the place of the first slow
    one (None: none is slow), and the bytes written until then."""

    intervals: int
    slow: int
    first_slow: int | None
    written: float


def find_sequential_share(slowness: Slowness) -> float:
    """Return the sequential share of the writes in slow intervals."""
    writes = slowness.disk.ops["write"]
    issued = math.fsum(writes.issued[at] for at, slow in enumerate(slowness.slow) if slow)
    sequential = math.fsum(writes.sequential[at] for at, slow in enumerate(slowness.slow) if slow)
    return sequential / issued if issued else 0.0


def find_full_cache(slowness: Slowness) -> Candidate | None:
    """Return the cache as a candidate if sequential writes became slow after they were fast."""
    if slowness.op != "write" or find_sequential_share(slowness) < SEQUENTIAL:
        return None
    drive = slowness.drive
    is_hot = drive is not None and drive.throttled is not None and any(drive.throttled)
    hot = "the drive throttled by heat" if is_hot else None
    if evidence := _explain_spells(list(_list_spells(slowness))):
        return Candidate(
            CauseName.SLC_CACHE,
            slowness.slow,
            evidence,
            _CHECK,
            is_direct=True,
            excluded=hot or explain_busy_cpus(slowness, may_be_saturated=True),
            explains=(CauseName.HOUSEKEEPING, CauseName.SLEEP, CauseName.SATURATION),
        )
    if slowness.find_ratio(slowness.series.bytes) > _DROP:
        return None
    slow, usual = slowness.compare_means(slowness.series.bytes)
    excluded = hot
    if max(len(episode.places) for episode in slowness.episodes) < _LASTING:
        excluded = excluded or (
            f"no episode has {_LASTING} intervals, and a full cache lasts until the drive is idle"
        )
    return Candidate(
        CauseName.SLC_CACHE,
        slowness.slow,
        f"sequential writes fell to {units.format_megabytes(slow)} MB/s in slow intervals, from "
        f"{units.format_megabytes(usual)} MB/s",
        _CHECK,
        is_direct=True,
        excluded=excluded or explain_doubt(slowness),
    )


def _list_spells(slowness: Slowness) -> Iterator[_Spell]:
    """Yield the spells of requests between idle intervals."""
    counts = [
        math.fsum(values) for values in zip(*(one.count for one in slowness.disk.ops.values()), strict=True)
    ]
    for is_busy, group in groupby(range(len(counts)), key=lambda at: counts[at] > 0):
        if is_busy:
            yield _make_spell(slowness, list(group))


def _make_spell(slowness: Slowness, places: Sequence[int]) -> _Spell:
    slow = [number for number, at in enumerate(places) if slowness.slow[at]]
    first = slow[0] if slow else None
    size = slowness.series.bytes
    written = math.fsum(size[at] for at in (places if first is None else places[:first]))
    # The cache became full within the first slow interval.
    written += 0.0 if first is None else size[places[first]] / 2
    return _Spell(len(places), len(slow), first, written)


def _explain_spells(spells: Sequence[_Spell]) -> str | None:
    """Return that spells were fast until the same number of bytes was written, and slow from then on, or
    None.

    A run of slow intervals at a random place ends together with its spell with a known probability.
    """
    full = [one for one in spells if one.first_slow]
    at_once = [one for one in spells if one.first_slow == 0]
    if len(full) < _MIN_SPELLS or len(at_once) > 0.2 * len(full):
        return None
    lasting = [one for one in full if one.slow >= _MOSTLY_SLOW * (one.intervals - (one.first_slow or 0) - 1)]
    if len(lasting) < 0.8 * len(full):
        return None
    size = median(one.written for one in lasting)
    spread = math.fsum(abs(math.log(one.written / size)) for one in lasting) / len(lasting)
    chance = math.prod(1 / (one.intervals - one.slow + 1) for one in lasting)
    beyond = [one for one in spells if one.first_slow is None and one.written > 1.5 * size]
    if spread > _MAX_SPREAD or chance > CHANCE or len(beyond) > 0.2 * len(full):
        return None
    return (
        f"writes were fast for about {units.format_capacity(round(size))} after each idle time, and slow "
        f"from then on, in {len(lasting)} of {len(full)} cases"
    )
