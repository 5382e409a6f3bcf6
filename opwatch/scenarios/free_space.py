"""Free space: throughput of random writes into files that fill a growing part of a drive. Pure.

The experiment runs once on the drive as is, and once with a part of the drive reserved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.scenarios.saturation import find_steady_iops
from opwatch.scenarios.scenario import Finding, ScenarioVerdict
from opwatch.scenarios.spare import infer_flash_bytes
from opwatch.sweep.outcome import LevelOutcome

# Maximum difference between the two lines if only free space matters.
_COINCIDE_RATIO = 0.03
# Maximum difference from the published result for a reproduction.
_ALIKE_RATIO = 0.10


class FilePoint(NamedTuple):
    """The results for one file size: steady-state bytes per second on the whole drive, and with the reserve.

    `apart_ratio` is the relative difference of the two. `relative` and `published` are rates relative to the
    smallest file, measured here and published. Rates are None without steady state.
    """

    label: str
    used_bytes: int
    whole: float | None
    reserved: float | None
    apart_ratio: float | None
    relative: float | None
    published: float | None


@dataclass(frozen=True, slots=True)
class FilledDrive:
    points: tuple[FilePoint, ...]
    statements: tuple[Finding, ...]
    # The flash available to files with which, by the FIFO model, the author's drive would have slowed down as
    # published.
    flash_as_published: float | None


def evaluate_free_space(
    whole: Sequence[LevelOutcome],
    reserved: Sequence[LevelOutcome],
    io_bytes: int,
    published: Sequence[float],
) -> FilledDrive:
    """Return both lines, smallest file first. `published` are rates in any unit for the same files, or
    empty."""
    first = _compute_rate(whole[0], io_bytes)
    known = published if len(published) == len(whole) else ()
    points = tuple(
        _make_point(one, other, io_bytes, first, known[place] / known[0] if known else None)
        for place, (one, other) in enumerate(zip(whole, reserved, strict=True))
    )
    return FilledDrive(
        points,
        (_check_coincidence(points), _check_fall(points), _check_published(points)),
        _fit_flash_bytes(points),
    )


def _compute_rate(outcome: LevelOutcome, io_bytes: int) -> float | None:
    iops = find_steady_iops(outcome)
    return None if iops is None else iops * io_bytes


def _make_point(
    whole: LevelOutcome, reserved: LevelOutcome, io_bytes: int, first: float | None, published: float | None
) -> FilePoint:
    one, other = _compute_rate(whole, io_bytes), _compute_rate(reserved, io_bytes)
    return FilePoint(
        label=whole.level.label,
        used_bytes=whole.level.usable_bytes,
        whole=one,
        reserved=other,
        apart_ratio=other / one - 1 if one and other is not None else None,
        relative=one / first if first and one is not None else None,
        published=published,
    )


def _check_coincidence(points: Sequence[FilePoint]) -> Finding:
    what = "the two lines coincide"
    apart = [abs(point.apart_ratio) for point in points if point.apart_ratio is not None]
    if len(apart) < len(points):
        return Finding(what, ScenarioVerdict.UNTOLD, "not every file reached steady state")
    is_so = max(apart) <= _COINCIDE_RATIO
    return Finding(
        what,
        ScenarioVerdict.REPRODUCED if is_so else ScenarioVerdict.NOT_REPRODUCED,
        f"they are at most {100 * max(apart):.2g} % apart; {100 * _COINCIDE_RATIO:g} % is allowed"
        + (": to the drive, all unwritten space is free, reserved or not" if is_so else ""),
    )


def _check_fall(points: Sequence[FilePoint]) -> Finding:
    what = "the larger the file, the slower"
    rates = [point.relative for point in points if point.relative is not None]
    if len(rates) < len(points):
        return Finding(what, ScenarioVerdict.UNTOLD, "not every file reached steady state")
    if rates[-1] > 1 - _COINCIDE_RATIO:
        return Finding(
            what,
            ScenarioVerdict.UNTOLD,
            "all have about the same speed: the interface is the limit, or the spare area is large "
            "enough for each",
        )
    is_so = all(later <= earlier for earlier, later in itertools.pairwise(rates))
    verdict = ScenarioVerdict.REPRODUCED if is_so else ScenarioVerdict.NOT_REPRODUCED
    return Finding(what, verdict, f"the largest has {rates[-1]:.2f} of the smallest's rate")


def _check_published(points: Sequence[FilePoint]) -> Finding:
    what = "by as much as published"
    pairs = [(point.relative, point.published) for point in points]
    if any(here is None or there is None for here, there in pairs):
        return Finding(
            what, ScenarioVerdict.UNTOLD, "not every file reached steady state, or no rates were published"
        )
    worst = max(abs((here or 0.0) / (there or math.inf) - 1) for here, there in pairs)
    if worst <= _ALIKE_RATIO:
        return Finding(what, ScenarioVerdict.REPRODUCED, f"within {100 * worst:.2g} %")
    flash = _fit_flash_bytes(points)
    why = f"the rates fall to {pairs[-1][0]:.2f}, the published ones to {pairs[-1][1]:.2f}"
    if flash is not None:
        why += (
            f": the author's drive behaved like one with {flash / 1e9:.0f} GB of flash for its files; "
            "the rest held data that was never discarded, or did not exist"
        )
    return Finding(what, ScenarioVerdict.NOT_REPRODUCED, why)


def _fit_flash_bytes(points: Sequence[FilePoint]) -> float | None:
    """Return the flash size with which the FIFO model slows down as published from the smallest file to the
    largest."""
    return infer_flash_bytes(points[0].used_bytes, points[-1].used_bytes, points[-1].published)
