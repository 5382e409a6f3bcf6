"""A level of a sweep on the simulated flash, in virtual time, with the same steps, rounds and verdicts.

A large drive is simulated with a reduced number of mapping units. Write amplification depends on their number
in two ways only: one superblock is always open, and a smaller superblock lets a greedy collector choose
better. Both effects are computed and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from opwatch.errors import NotEnoughData, UsageError
from opwatch.ftl.drive import Drive, Policy, Workload, Zone, find_latencies_ns, unpack_slots
from opwatch.ftl.profiles import Profile
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.pts import PtsVerdict, judge_pts
from opwatch.steady.rounds import Round
from opwatch.steady.skew import UNIFORM
from opwatch.steady.strict import StrictState, StrictVerdict, VerdictInputs, judge_strict
from opwatch.sweep.band import make_greedy_model
from opwatch.sweep.figures import QUANTILES, compute_variation
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.model_jobs import UsedBytes
from opwatch.sweep.model_load import ModelLoad, StartedLoad
from opwatch.sweep.outcome import HostBytes, LevelFigures, LevelOutcome, add_verdict_error
from opwatch.sweep.plan import SweepPace, compute_round_size
from opwatch.sweep.tails import estimate_percentile_errors

_UNITS, _SUPERBLOCKS = 1 << 20, 512
_MIN_BEYOND = 10
# Units of the smallest model, and pages of its superblocks.
_LEAST_UNITS, _LEAST_PAGES = 1 << 13, 64
# Rounds after which not each one is judged, because a verdict takes as long as a round of a small model.
_JUDGED_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class ModelDrive:
    """The simulated drive.

    `ratio` is the model's size relative to the real drive. The simulation has `superblocks` superblocks of
    `superblock_pages` pages; the real drive's superblocks have `real_superblock_pages` pages, or None if not
    in the profile.
    """

    profile: Profile
    ratio: float
    superblocks: int
    superblock_pages: int
    real_superblock_pages: int | None

    def error_ratio(self, alpha: float) -> float:
        """Return the possible relative error of WAF due to the model's size; 0 for a full-size model."""
        if self.ratio == 1:
            return 0.0
        open_ratio = 1 / self.superblocks
        if self.profile.drive.get("policy", Policy.GREEDY) != Policy.GREEDY:
            return open_ratio
        small = make_greedy_model(self.superblock_pages).waf(alpha)
        large = make_greedy_model(self.real_superblock_pages).waf(alpha)
        return abs(small / large - 1) + open_ratio


def find_mapping_unit(profile: Profile) -> int:
    return profile.drive.get("iu_bytes", 4096)


def make_model(profile: Profile, io_bytes: int) -> ModelDrive:
    """Return the model of a profile at its simulated size, for requests of one size."""
    unit = find_mapping_unit(profile)
    if io_bytes < unit or io_bytes & (io_bytes - 1):
        raise UsageError(
            f"--bs {io_bytes}: the model of {profile.name} needs a power of two, and at least its "
            f"mapping unit of {unit} bytes"
        )
    return _shrink_profile(profile, _UNITS)


def make_load_model(profile: Profile, load: ModelLoad) -> ModelDrive:
    """Return the model of a profile for any load. It has no more units than the disk of a history.

    The write buffer is scaled too, because it holds the hottest data back.
    """
    unit = find_mapping_unit(profile)
    units, most = _UNITS, load.find_most_units(unit)
    if most is not None:
        if most < _LEAST_UNITS:
            raise UsageError(f"{load.name}: {most} units of {unit} bytes are too few for a model")
        units = min(most, units)
    model = _shrink_profile(profile, units)
    buffer = model.profile.drive.get("buffer_bytes", 0)
    if not buffer or model.ratio == 1:
        return model
    drive = dict(model.profile.drive) | {"buffer_bytes": max(round(buffer * model.ratio) // unit, 1) * unit}
    return replace(model, profile=replace(model.profile, drive=drive))


def _shrink_profile(profile: Profile, units: int) -> ModelDrive:
    """Return the model of a profile with at most that many mapping units."""
    unit = find_mapping_unit(profile)
    own = profile.drive.get("superblock_bytes")
    own_pages = own // unit if own else None
    whole = profile.drive["user_bytes"]
    if whole <= units * unit:
        pages = make_drive(profile).core.config()["superblock_bytes"] // unit
        return ModelDrive(profile, 1.0, whole // unit // pages, pages, own_pages)
    pages = max(1 << (units // _SUPERBLOCKS).bit_length() - 1, _LEAST_PAGES)
    pages = min(pages, own_pages or units)
    small = profile.scale_to(units * unit)
    small = replace(small, drive=dict(small.drive) | {"superblock_bytes": pages * unit})
    return ModelDrive(small, units * unit / whole, units // pages, pages, own_pages)


def make_drive(profile: Profile) -> Drive:
    """Return the simulated drive. Raises UsageError if its settings contradict each other."""
    try:
        return profile.create_drive()
    except ValueError as error:
        raise UsageError(f"drive profile {profile.name}: cannot create the model: {error}") from error


def compute_flash_bytes(model: ModelDrive) -> int:
    """Return T of the real drive."""
    return round(make_drive(model.profile).read_geometry().physical_bytes / model.ratio)


@dataclass(frozen=True, slots=True)
class _LevelRun:
    """The results of a level's rounds, with the latencies of each round as one integer."""

    rounds: list[Round]
    slots: list[int]
    strict: StrictVerdict


def run_level(
    model: ModelDrive,
    level: OpLevel,
    load: ModelLoad,
    pace: SweepPace,
    progress: Callable[[OpLevel, int], bool],
) -> LevelOutcome:
    """Run a level: purge, fill, rounds, verdict.

    `progress` is called after every round and returns whether to continue.
    """
    used = find_used_bytes(model, level)
    unit = find_mapping_unit(model.profile)
    drive = make_drive(model.profile)
    for _ in range(pace.fill_passes):
        drive.run_load(Workload((Zone(0, used.model),), sequential=True), used.model // unit)
    started = load.start(drive, used)
    for begin, length in started.free:
        drive.core.trim(begin, length)
    small = replace(level, usable_bytes=used.model, flash_bytes=drive.read_geometry().physical_bytes)
    course = _run_rounds(drive, small, started, pace, lambda count: progress(level, count))
    figures = _compute_figures(course, model, small, load.timing_reason)
    return LevelOutcome(
        level=level,
        rounds=tuple(course.rounds),
        figures=add_verdict_error(figures, course.strict),
        pts=None if load.timing_reason else _judge_pts(course.rounds),
        strict=course.strict,
        is_model=True,
    )


def find_used_bytes(model: ModelDrive, level: OpLevel) -> UsedBytes:
    """Return the bytes in use at a level, of the real drive and of the model."""
    unit = find_mapping_unit(model.profile)
    return UsedBytes(level.usable_bytes, max(round(level.usable_bytes * model.ratio) // unit, 1) * unit)


def _run_rounds(
    drive: Drive, level: OpLevel, started: StartedLoad, pace: SweepPace, goes_on: Callable[[int], bool]
) -> _LevelRun:
    wanted, step = compute_round_size(level, pace), started.step_bytes
    round_bytes = -(-wanted // step) * step
    rounds: list[Round] = []
    slots: list[int] = []
    while True:
        done = started.host.play(round_bytes)
        [tail_ns] = find_latencies_ns(unpack_slots(done.packed_slots), (0.99,))
        rounds.append(
            Round(
                host_bytes=round(done.host_bytes / started.padding_ratio),
                seconds=done.ns / 1e9,
                ios=done.ios,
                p99_ns=None if tail_ns is None else float(tail_ns),
                nand_bytes=done.nand_bytes,
            )
        )
        slots.append(done.packed_slots)
        count = len(rounds)
        is_last = not goes_on(count) or count >= pace.most_rounds
        if not is_last and (count < pace.least_rounds or count % -(-count // _JUDGED_ROUNDS)):
            continue
        strict = _judge_strict(drive, level, started, rounds)
        if is_last or strict.state is StrictState.PASS:
            return _LevelRun(rounds, slots, strict)


def _judge_strict(
    drive: Drive, level: OpLevel, started: StartedLoad, rounds: Sequence[Round]
) -> StrictVerdict:
    counters = drive.read_counters()
    active, covered = level.usable_bytes, counters["valid_bytes"] / level.usable_bytes
    if started.host.records is not None:
        # What the recorded requests trim is spare area too.
        active, covered = counters["valid_bytes"], 1.0
    is_even = len(started.parts) == len(UNIFORM)
    source = "the model's map; uniform by its generator" if is_even else "the model's map"
    spread = WriteSpread(covered, 0.0 if is_even else None, source, started.parts)
    return judge_strict(rounds, VerdictInputs(active, counters["physical_bytes"] - active, spread))


def _judge_pts(rounds: Sequence[Round]) -> PtsVerdict | None:
    try:
        return judge_pts({"IOPS": [one.iops for one in rounds]})
    except NotEnoughData:
        return None


def _compute_figures(
    course: _LevelRun, model: ModelDrive, level: OpLevel, timing_reason: str | None
) -> LevelFigures:
    missing = {
        "cpu_ns_per_io": "a model in virtual time uses no host CPU",
        "load_cpu_ratio": "a model in virtual time uses no host CPU",
        "temperature_c": "the model has no temperature",
        "iops_worst_second": "one second of a scaled model is not one second of the drive",
        "latency_by_fio": "no fio runs in virtual time",
    }
    window = course.strict.window
    if window is None or course.strict.state is StrictState.NOT_REACHED:
        reason = f"no steady state: {course.strict.reason}"
        names = ("host", "nand_bytes", "waf", "iops", "latency_by_trace")
        return LevelFigures(missing=missing | dict.fromkeys(names, reason))
    first = window.first_round - 1
    rounds = course.rounds[first:]
    whole, slots = window.whole, course.slots[first:]
    figures = LevelFigures(
        host=HostBytes(firmware=whole.host_bytes),
        nand_bytes=whole.nand_bytes,
        waf=whole.waf,
        waf_error=_estimate_model_error(whole, model, level),
        missing=missing,
    )
    if timing_reason:
        reasons = dict.fromkeys(("iops", "iops_cv", "latency_by_trace"), timing_reason)
        return replace(figures, missing=missing | reasons)
    return replace(
        figures,
        iops=whole.iops,
        iops_cv=compute_variation([one.iops for one in rounds]),
        latency_by_trace=_compute_percentiles(slots),
        latency_error_ratio=estimate_percentile_errors(slots, _compute_percentiles),
    )


def _estimate_model_error(whole: Round, model: ModelDrive, level: OpLevel) -> float | None:
    """Return the error of WAF due to the model's size."""
    return None if whole.waf is None or level.alpha is None else model.error_ratio(level.alpha) * whole.waf


def _compute_percentiles(slots: Sequence[int]) -> dict[str, float]:
    """Return the percentiles over all I/Os of the window; omit percentiles with too few I/Os beyond."""
    summed = unpack_slots(sum(slots))
    total = sum(summed)
    wanted = {name: ratio for name, ratio in QUANTILES.items() if total * (1 - ratio) >= _MIN_BEYOND}
    latencies = find_latencies_ns(summed, wanted.values())
    return {
        name: float(latency) for name, latency in zip(wanted, latencies, strict=True) if latency is not None
    }
