"""What a sweep will do, step by step, before anything of it is done. Pure: to plan writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from opwatch.frozen import frozen
from opwatch.sweep.levels import LevelFiles, OpLevel
from opwatch.sweep.purges import DISCARD, FORMAT, SECURE_ERASE, PurgeWay

# A decimal gigabyte of flash that is made in binary ones.
_USUAL_HIDDEN = 0.07
# A drive of which so much was written moves nothing yet, whatever it keeps for itself.
_NEW_RATIO = 0.1


class StepKind(StrEnum):
    GUARD = "guard"  # is it still that drive, and still nobody else's?
    PURGE = "purge"  # as if never used, as far as the way that was chosen goes
    SETTLE = "settle"  # leave it alone until it has erased what was purged
    LIMIT = "limit"  # set the level: window, partition, namespace, files
    PROBE = "probe"  # I/Os of one kind, for a while
    FILL = "fill"  # write all that the level leaves, in order
    ROUND = "round"  # the workload
    VERDICT = "verdict"  # steady or not
    RESTORE = "restore"  # what was changed is as it was


@frozen
class SweepStep:
    """One step, `at_least` to `at_most` times. Bytes and seconds are of one time; `level` is None for what is
    done once for all of them. `seconds` is None where nothing is known of the drive's speed."""

    kind: StepKind
    what: str
    level: OpLevel | None = None
    write_bytes: int = 0
    discard_bytes: int = 0
    seconds: float | None = 0.0
    at_least: int = 1
    at_most: int = 1


@frozen
class SweepRefusal:
    """Why the sweep would not run: `what` is in the way, and `remedy` is what a person can do about it.
    `rule` names the check that said so, in one word."""

    rule: str
    what: str
    remedy: str = ""


@frozen
class SweepPlan:
    """All that a sweep will do. `life_bytes` is what the drive is rated to take in all; None where that is
    not known, and why stands in `life_reason`. It ends when `most_write_bytes` were written, if that is not
    None; `bytes_reason` says why steps are left out of what it writes."""

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
        """The least and the most that the host writes."""
        least = sum(step.write_bytes * step.at_least for step in self.steps)
        most = sum(step.write_bytes * step.at_most for step in self.steps)
        if self.most_write_bytes is None:
            return least, most
        return min(least, self.most_write_bytes), self.most_write_bytes

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The least and the most time, None where that of a step is not known."""
        times = [(step.seconds, step) for step in self.steps]
        if any(seconds is None for seconds, _ in times):
            return None
        return (
            sum((seconds or 0.0) * step.at_least for seconds, step in times),
            sum((seconds or 0.0) * step.at_most for seconds, step in times),
        )

    @property
    def life_ratio(self) -> tuple[float, float] | None:
        """The share of the rated life that it takes."""
        if not self.life_bytes:
            return None
        least, most = self.write_bytes
        return least / self.life_bytes, most / self.life_bytes


@frozen
class SweepSpeed:
    """What is known of a drive before it is measured; None where nothing is."""

    fill_bytes_per_s: float | None = None
    round_bytes_per_s: float | None = None


@frozen
class SweepPace:
    """How much of everything: `round_ratio` is the length of a round as a share of what is in use. With
    `sprandom` the fill is one pass of fio's, which leaves a drive as random writes would in the end.
    `probe_s` is for how long I/Os of each kind are measured beside the rounds, none for 0."""

    fill_passes: int = 2
    round_ratio: float = 0.1
    least_rounds: int = 5
    most_rounds: int = 60
    settle_s: float = 60.0
    sprandom: bool = False
    probe_s: float = 0.0


def plan_steps(
    levels: Sequence[OpLevel], method: str, pace: SweepPace, speed: SweepSpeed, purge: PurgeWay = DISCARD
) -> tuple[SweepStep, ...]:
    """Every step of a sweep, in order."""
    steps = [step for level in levels for step in _of_level(level, method, pace, speed, purge)]
    is_on_files = any(level.files for level in levels)
    last = SweepStep(
        StepKind.RESTORE,
        "trim what is free again"
        if is_on_files
        else "discard the whole drive, and undo what was changed of it",
    )
    return (*steps, last)


def _of_level(
    level: OpLevel, method: str, pace: SweepPace, speed: SweepSpeed, purge: PurgeWay
) -> Iterable[SweepStep]:
    round_bytes = round_size(level, pace)
    least = _least_rounds(level, round_bytes, pace)
    limits = _of_files(level, level.files, speed) if level.files else _of_drive(level, method, purge)
    yield SweepStep(
        StepKind.GUARD,
        "the same drive and file system, and nobody else's writes"
        if level.files
        else "the same drive, and nobody else's",
        level,
    )
    yield next(limits)
    yield SweepStep(StepKind.SETTLE, "let it erase", level, seconds=pace.settle_s)
    yield from limits
    probes = _probes(level, pace)
    yield from probes[:-1]
    filled, passes = fill_size(level, pace)
    yield SweepStep(
        StepKind.FILL,
        "write all of it, as random writes leave it" if pace.sprandom else "write all of it in order",
        level,
        write_bytes=filled,
        seconds=_time(filled, speed.round_bytes_per_s if pace.sprandom else speed.fill_bytes_per_s),
        at_least=passes,
        at_most=passes,
    )
    yield from probes[-1:]
    yield SweepStep(
        StepKind.ROUND,
        "the workload" if least <= pace.most_rounds else f"the workload; no verdict before round {least}",
        level,
        write_bytes=round_bytes,
        seconds=_time(round_bytes, speed.round_bytes_per_s),
        at_least=min(least, pace.most_rounds),
        at_most=pace.most_rounds,
    )
    yield SweepStep(StepKind.VERDICT, "steady or not, by SNIA's rule and by ours", level)


def _probes(level: OpLevel, pace: SweepPace) -> list[SweepStep]:
    """What is measured beside the rounds, the last of it behind the fill."""
    if not pace.probe_s:
        return []
    words = (
        ("read while it is empty", 0),
        ("write a little of it", probe_size(level)),
        ("read what is there", 0),
    )
    return [
        SweepStep(StepKind.PROBE, what, level, write_bytes=n_bytes, seconds=pace.probe_s)
        for what, n_bytes in words
    ]


def _of_drive(level: OpLevel, method: str, purge: PurgeWay) -> Iterator[SweepStep]:
    """How a level is made of a whole drive: the purge first."""
    yield purge_step(level, purge)
    if method == "namespace" and level.usable_bytes < level.scale.capacity_bytes:
        made = f"one of {level.usable_bytes} bytes in its place"
        yield SweepStep(
            StepKind.LIMIT,
            f"detach and delete the namespace; create, attach and discard {made}, until the level has ended",
            level,
            discard_bytes=level.usable_bytes,
        )
    else:
        yield SweepStep(StepKind.LIMIT, f"leave {level.usable_bytes} bytes in use by {method}", level)


def purge_step(level: OpLevel, purge: PurgeWay) -> SweepStep:
    """The purge of a whole drive. A format and an erase discard nothing beside."""
    discarded = 0 if purge.name in (FORMAT.name, SECURE_ERASE.name) else level.scale.capacity_bytes
    return SweepStep(StepKind.PURGE, purge.what, level, discard_bytes=discarded, seconds=purge.seconds)


def _of_files(level: OpLevel, files: LevelFiles, speed: SweepSpeed) -> Iterator[SweepStep]:
    """How a level is made of files: the trim first."""
    free = level.scale.capacity_bytes - level.usable_bytes + level.active_bytes
    yield SweepStep(StepKind.PURGE, "trim all that is free there", level, discard_bytes=free)
    ballast = f", and {files.ballast_bytes} bytes of ballast beside it" if files.ballast_bytes else ""
    yield SweepStep(
        StepKind.LIMIT,
        f"a file of {files.load_bytes} bytes{ballast}",
        level,
        write_bytes=files.ballast_bytes,
        seconds=_time(files.ballast_bytes, speed.fill_bytes_per_s) if files.ballast_bytes else 0.0,
    )


def round_size(level: OpLevel, pace: SweepPace) -> int:
    """The bytes of a round, in whole units of 4096."""
    return max(round(level.active_bytes * pace.round_ratio) // 4096, 1) * 4096


def fill_size(level: OpLevel, pace: SweepPace) -> tuple[int, int]:
    """The bytes of a pass of the fill, and how many there are."""
    if not pace.sprandom:
        return level.load_bytes, pace.fill_passes
    # fio rounds up to one of its blocks.
    return level.usable_bytes + int(sprandom_ratio(level) * level.usable_bytes) + 2 * 4096, 1


def probe_size(level: OpLevel) -> int:
    """The most that is written to see how fast it is while it is new, in whole units of 4096."""
    return max(round(level.active_bytes * _NEW_RATIO) // 4096, 1) * 4096


def sprandom_ratio(level: OpLevel) -> float:
    """(T-U)/U as fio's sprandom has to know it; where T is not known, with what drives usually keep for
    themselves. fio takes what lies between 0 and 1. A ratio that is off by a third costs a few rounds."""
    spare = level.spare_bytes
    if spare is None:
        spare = level.scale.capacity_bytes - level.usable_bytes + int(_USUAL_HIDDEN * level.usable_bytes)
    return round(min(max(spare / level.usable_bytes, 0.01), 0.99), 4)


def seconds_left(
    levels: Sequence[OpLevel],
    method: str,
    pace: SweepPace,
    speed: SweepSpeed,
    rounds: int,
    purge: PurgeWay = DISCARD,
) -> tuple[float, float] | None:
    """The least and the most time of these levels, of the first of which so many rounds are done; None where
    the speed is not known, or how long a purge takes."""
    here, *later = levels
    round_bytes = round_size(here, pace)
    seconds = _time(round_bytes, speed.round_bytes_per_s)
    times = [(step.seconds, step) for step in plan_steps(later, method, pace, speed, purge)]
    if seconds is None or any(of_step is None for of_step, _ in times):
        return None
    most = max(pace.most_rounds - rounds, 1)
    least = min(max(_least_rounds(here, round_bytes, pace) - rounds, 1), most)
    return (
        seconds * least + sum((of_step or 0.0) * step.at_least for of_step, step in times),
        seconds * most + sum((of_step or 0.0) * step.at_most for of_step, step in times),
    )


def least_bytes(level: OpLevel, method: str, pace: SweepPace) -> int:
    """The least that a level writes until there can be a verdict, or there are too many rounds."""
    steps = plan_steps([level], method, pace, SweepSpeed())
    return sum(step.write_bytes * step.at_least for step in steps)


def _least_rounds(level: OpLevel, round_bytes: int, pace: SweepPace) -> int:
    """No verdict of ours comes before T-U, or the most that it can be, and once what is in use were written:
    its window lies behind the rounds that used the spare area first."""
    before = -(-level.most_spare_bytes // round_bytes)
    window = -(-level.active_bytes // round_bytes)
    return before + max(pace.least_rounds, window)


def _time(n_bytes: int, bytes_per_s: float | None) -> float | None:
    return n_bytes / bytes_per_s if bytes_per_s else None
