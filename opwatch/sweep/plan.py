"""Plan a sweep step by step before the start. Pure: planning writes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from opwatch.ftl.models import predict_fifo_mixture
from opwatch.steady.skew import UNIFORM, WritePart, compute_turnover
from opwatch.steady.window import size_lookback
from opwatch.sweep.levels import LevelFiles, OpLevel
from opwatch.sweep.purges import DISCARD, FORMAT, SECURE_ERASE, PurgeMethod

# Difference between a binary gigabyte of flash and a decimal gigabyte of capacity.
_USUAL_HIDDEN = 0.07
# A drive filled to this share relocates nothing yet, however small its spare area.
_NEW_RATIO = 0.1


class StepKind(StrEnum):
    GUARD = "guard"  # verify that the drive is the same and still unused by others
    PURGE = "purge"  # return the drive to its unused state, as far as the chosen method does
    SETTLE = "settle"  # idle until the drive has erased the purged blocks
    LIMIT = "limit"  # set the level: window, partition, namespace, files
    PROBE = "probe"  # I/Os of one kind for a fixed time
    FILL = "fill"  # write the level's whole range sequentially
    ROUND = "round"  # the workload
    VERDICT = "verdict"  # steady state or not
    RESTORE = "restore"  # undo all changes


@dataclass(frozen=True, slots=True)
class SweepStep:
    """One step, run `at_least` to `at_most` times.

    Bytes and seconds are per run. `level` is None for a step done once for all levels. `seconds` is None if
    the drive's speed is unknown.
    """

    kind: StepKind
    what: str
    level: OpLevel | None = None
    write_bytes: int = 0
    discard_bytes: int = 0
    seconds: float | None = 0.0
    at_least: int = 1
    at_most: int = 1


@dataclass(frozen=True, slots=True)
class SweepRefusal:
    """The reason why a sweep would not run.

    `what` is the obstacle and `remedy` the user's way to remove it. `rule` is the one-word name of the check.
    """

    rule: str
    what: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """All steps of a sweep.

    `life_bytes` is the drive's rated write endurance, or None with the reason in `life_reason`. The sweep
    stops after `most_write_bytes` unless None. `bytes_reason` says why the planned bytes omit some steps.
    """

    target: str
    method: str
    workload: str
    levels: tuple[OpLevel, ...]
    steps: tuple[SweepStep, ...]
    refusals: tuple[SweepRefusal, ...] = ()
    life_bytes: int | None = None
    life_reason: str = ""
    is_model: bool = False
    most_write_bytes: int | None = None
    bytes_reason: str = ""

    @property
    def write_bytes(self) -> tuple[int, int]:
        """Return the least and the most host bytes written."""
        least = sum(step.write_bytes * step.at_least for step in self.steps)
        most = sum(step.write_bytes * step.at_most for step in self.steps)
        if self.most_write_bytes is None:
            return least, most
        return min(least, self.most_write_bytes), self.most_write_bytes

    @property
    def seconds(self) -> tuple[float, float] | None:
        """Return the shortest and longest duration, or None if a step's duration is unknown."""
        times = [(step.seconds, step) for step in self.steps]
        if any(seconds is None for seconds, _ in times):
            return None
        return (
            sum((seconds or 0.0) * step.at_least for seconds, step in times),
            sum((seconds or 0.0) * step.at_most for seconds, step in times),
        )

    @property
    def life_ratio(self) -> tuple[float, float] | None:
        """Return the least and the most share of the rated life used."""
        if not self.life_bytes:
            return None
        least, most = self.write_bytes
        return least / self.life_bytes, most / self.life_bytes


@dataclass(frozen=True, slots=True)
class SweepSpeed:
    """The drive's speeds known before the measurement, each None if unknown."""

    fill_bytes_per_s: float | None = None
    round_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class SweepPace:
    """The amounts of work in a sweep.

    `round_ratio` is a round's length as a share of the data in use. With `sprandom`, the fill is one pass of
    fio's sprandom mode, which leaves a drive in a state like long random writes. `probe_s` is the duration of
    each probe before and after the fill; 0 means none.
    """

    fill_passes: int = 2
    round_ratio: float = 0.1
    least_rounds: int = 5
    most_rounds: int = 100
    settle_s: float = 60.0
    sprandom: bool = False
    probe_s: float = 0.0


def plan_steps(
    levels: Sequence[OpLevel],
    method: str,
    pace: SweepPace,
    speed: SweepSpeed,
    purge: PurgeMethod = DISCARD,
    parts: tuple[WritePart, ...] = UNIFORM,
) -> tuple[SweepStep, ...]:
    """Return all steps of a sweep, in order. `parts` are the workload's, or empty if unknown."""
    steps = [step for level in levels for step in _plan_level(level, method, pace, speed, purge, parts)]
    is_on_files = any(level.files for level in levels)
    last = SweepStep(
        StepKind.RESTORE,
        "trim the free space again" if is_on_files else "discard the whole drive, and undo all changes to it",
    )
    return (*steps, last)


def _plan_level(
    level: OpLevel,
    method: str,
    pace: SweepPace,
    speed: SweepSpeed,
    purge: PurgeMethod,
    parts: tuple[WritePart, ...],
) -> Iterable[SweepStep]:
    round_bytes = compute_round_size(level, pace)
    least = _compute_min_rounds(level, round_bytes, pace, parts)
    limits = (
        _plan_file_level(level, level.files, speed)
        if level.files
        else _plan_drive_level(level, method, purge)
    )
    yield SweepStep(
        StepKind.GUARD,
        "the same drive and filesystem, without writes by others"
        if level.files
        else "the same drive, without other users",
        level,
    )
    yield next(limits)
    yield SweepStep(StepKind.SETTLE, "wait while the drive erases", level, seconds=pace.settle_s)
    yield from limits
    probes = _plan_probes(level, pace)
    yield from probes[:-1]
    filled, passes = compute_fill_size(level, pace)
    yield SweepStep(
        StepKind.FILL,
        "write all of it, in the state that random writes leave"
        if pace.sprandom
        else "write all of it in order",
        level,
        write_bytes=filled,
        seconds=_estimate_seconds(
            filled, speed.round_bytes_per_s if pace.sprandom else speed.fill_bytes_per_s
        ),
        at_least=passes,
        at_most=passes,
    )
    yield from probes[-1:]
    yield SweepStep(
        StepKind.ROUND,
        "the workload" if least <= pace.most_rounds else f"the workload; no verdict before round {least}",
        level,
        write_bytes=round_bytes,
        seconds=_estimate_seconds(round_bytes, speed.round_bytes_per_s),
        at_least=min(least, pace.most_rounds),
        at_most=pace.most_rounds,
    )
    yield SweepStep(StepKind.VERDICT, "steady or not, by SNIA's rule and opwatch's", level)


def _plan_probes(level: OpLevel, pace: SweepPace) -> list[SweepStep]:
    """Return the measurements other than rounds; the last runs after the fill."""
    if not pace.probe_s:
        return []
    words = (
        ("read while it is empty", 0),
        ("write a small part", compute_probe_size(level)),
        ("read while it is full", 0),
    )
    return [
        SweepStep(StepKind.PROBE, what, level, write_bytes=n_bytes, seconds=pace.probe_s)
        for what, n_bytes in words
    ]


def _plan_drive_level(level: OpLevel, method: str, purge: PurgeMethod) -> Iterator[SweepStep]:
    """Yield the steps that set a level on a whole drive, the purge first."""
    yield make_purge_step(level, purge)
    if method == "namespace" and level.usable_bytes < level.scale.capacity_bytes:
        made = f"one of {level.usable_bytes} bytes instead"
        yield SweepStep(
            StepKind.LIMIT,
            f"detach and delete the namespace; create, attach and discard {made}, for this level",
            level,
            discard_bytes=level.usable_bytes,
        )
    else:
        yield SweepStep(StepKind.LIMIT, f"leave {level.usable_bytes} bytes in use by {method}", level)


def make_purge_step(level: OpLevel, purge: PurgeMethod) -> SweepStep:
    """Return the purge step of a whole drive. A format or an erase needs no additional discard."""
    discarded = 0 if purge.name in (FORMAT.name, SECURE_ERASE.name) else level.scale.capacity_bytes
    return SweepStep(StepKind.PURGE, purge.what, level, discard_bytes=discarded, seconds=purge.seconds)


def _plan_file_level(level: OpLevel, files: LevelFiles, speed: SweepSpeed) -> Iterator[SweepStep]:
    """Yield the steps that set a level made of files, the trim first."""
    free = level.scale.capacity_bytes - level.usable_bytes + level.active_bytes
    yield SweepStep(StepKind.PURGE, "trim all free space", level, discard_bytes=free)
    ballast = f", and {files.ballast_bytes} bytes of ballast" if files.ballast_bytes else ""
    yield SweepStep(
        StepKind.LIMIT,
        f"a file of {files.load_bytes} bytes{ballast}",
        level,
        write_bytes=files.ballast_bytes,
        seconds=_estimate_seconds(files.ballast_bytes, speed.fill_bytes_per_s)
        if files.ballast_bytes
        else 0.0,
    )


def compute_round_size(level: OpLevel, pace: SweepPace) -> int:
    """Return the bytes per round, a multiple of 4096."""
    return max(round(level.active_bytes * pace.round_ratio) // 4096, 1) * 4096


def compute_fill_size(level: OpLevel, pace: SweepPace) -> tuple[int, int]:
    """Return the bytes per pass of the fill and the number of passes."""
    if not pace.sprandom:
        return level.load_bytes, pace.fill_passes
    # fio rounds up to its block size.
    return level.usable_bytes + int(compute_sprandom_ratio(level) * level.usable_bytes) + 2 * 4096, 1


def compute_probe_size(level: OpLevel) -> int:
    """Return the most bytes to write when measuring the speed of the new drive, a multiple of 4096."""
    return max(round(level.active_bytes * _NEW_RATIO) // 4096, 1) * 4096


def compute_sprandom_ratio(level: OpLevel) -> float:
    """Return (T-U)/U for fio's sprandom mode.

    If T is unknown, a typical hidden reserve is assumed. fio accepts values between 0 and 1. An error of a
    third costs a few rounds.
    """
    spare = level.spare_bytes
    if spare is None:
        spare = level.scale.capacity_bytes - level.usable_bytes + int(_USUAL_HIDDEN * level.usable_bytes)
    return round(min(max(spare / level.usable_bytes, 0.01), 0.99), 4)


def estimate_seconds_left(
    levels: Sequence[OpLevel],
    method: str,
    pace: SweepPace,
    speed: SweepSpeed,
    rounds: int,
    purge: PurgeMethod = DISCARD,
    parts: tuple[WritePart, ...] = UNIFORM,
) -> tuple[float, float] | None:
    """Return the least and the most time for these levels, given the finished rounds of the first level.

    None if the speed or the duration of a purge is unknown.
    """
    here, *later = levels
    round_bytes = compute_round_size(here, pace)
    seconds = _estimate_seconds(round_bytes, speed.round_bytes_per_s)
    times = [(step.seconds, step) for step in plan_steps(later, method, pace, speed, purge, parts)]
    if seconds is None or any(of_step is None for of_step, _ in times):
        return None
    most = max(pace.most_rounds - rounds, 1)
    least = min(max(_compute_min_rounds(here, round_bytes, pace, parts) - rounds, 1), most)
    return (
        seconds * least + sum((of_step or 0.0) * step.at_least for of_step, step in times),
        seconds * most + sum((of_step or 0.0) * step.at_most for of_step, step in times),
    )


def compute_min_bytes(level: OpLevel, method: str, pace: SweepPace) -> int:
    """Return the minimum bytes a level writes before a verdict is possible or the rounds are used up."""
    steps = plan_steps([level], method, pace, SweepSpeed())
    return sum(step.write_bytes * step.at_least for step in steps)


def _compute_min_rounds(
    level: OpLevel, round_bytes: int, pace: SweepPace, parts: tuple[WritePart, ...]
) -> int:
    """Return the number of rounds before the strict verdict can pass.

    The look-back starts after the first use of T-U (or of its upper bound) and the turnover of cold data,
    whose length is that of a collector with a high WAF.
    """
    spare_ratio = level.most_spare_bytes / level.active_bytes
    turnover = compute_turnover(parts, spare_ratio, predict_fifo_mixture(1 + spare_ratio, parts))
    size = size_lookback(spare_ratio, turnover if parts else None)
    skipped, lookback = (
        math.ceil(writes * level.active_bytes / round_bytes) for writes in (size.skipped, size.least)
    )
    return skipped + max(pace.least_rounds, lookback)


def _estimate_seconds(n_bytes: int, bytes_per_s: float | None) -> float | None:
    return n_bytes / bytes_per_s if bytes_per_s else None
