"""Free space: throughput of random writes into files that fill a growing part of a drive. Pure.

The experiment runs once on the drive as is, and once with a part of the drive reserved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.scenarios.claims import Judgement, MeasuredValue, ScenarioEvidence, make_range
from opwatch.scenarios.saturation import find_steady_iops
from opwatch.scenarios.scenario import Scenario
from opwatch.scenarios.spare import infer_flash_bytes
from opwatch.sweep.outcome import LevelOutcome

# If the largest file has more than this share of the smallest's rate, all have about the same.
_SAME_RATIO = 0.97


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
    """The results for all files."""

    points: tuple[FilePoint, ...]
    judgement: Judgement
    # The flash available to files with which, by the FIFO model, the author's drive would have slowed down as
    # published.
    flash_as_published: float | None


def evaluate_free_space(
    scenario: Scenario,
    whole: Sequence[LevelOutcome],
    reserved: Sequence[LevelOutcome],
    io_bytes: int,
    on: str = "model",
) -> FilledDrive:
    """Return both lines on a "model" or a "drive", smallest file first.

    Rates were published for the author's number of files only.
    """
    first, published = _compute_rate(whole[0], io_bytes), scenario.published_rates
    known = published if len(published) == len(whole) else ()
    points = tuple(
        _make_point(one, other, io_bytes, first, known[place] / known[0] if known else None)
        for place, (one, other) in enumerate(zip(whole, reserved, strict=True))
    )
    flash = infer_flash_bytes(points[0].used_bytes, points[-1].used_bytes, points[-1].published)
    return FilledDrive(points, scenario.judge(_make_evidence(points, flash), on), flash)


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


def _make_evidence(points: Sequence[FilePoint], flash: float | None) -> ScenarioEvidence:
    relative = [point.relative for point in points]
    are_fast = None not in relative and (relative[-1] or 0.0) > _SAME_RATIO
    author = ""
    if flash is not None:
        author = (
            f": the author's drive behaved like one with {flash / 1e9:.0f} GB of flash for its files; "
            "the rest held data that was never discarded, or did not exist"
        )
    return ScenarioEvidence(
        amounts={
            "reserved / whole": [
                MeasuredValue(None if point.apart_ratio is None else 1 + point.apart_ratio)
                for point in points
            ],
            "of first": [MeasuredValue(value) for value in relative],
        },
        expected={"published": [make_range(point.published) for point in points]},
        texts={"flash of the author": author},
        flags={"all equally fast": are_fast},
    )
