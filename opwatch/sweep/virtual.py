"""A level of a sweep on the simulated flash, in virtual time, with the same steps, rounds and verdicts.

A large drive is simulated with a reduced number of mapping units. Write amplification depends on their number
in two ways only: one superblock is always open, and a smaller superblock lets a greedy collector choose
better. Both effects are computed and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from opwatch.errors import NotEnoughData, UsageError
from opwatch.ftl.drive import Drive, Policy, TimedRun, Workload, Zone
from opwatch.ftl.profiles import Profile
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.pts import PtsVerdict, judge_pts
from opwatch.steady.rounds import Round, merge_rounds
from opwatch.steady.skew import UNIFORM
from opwatch.steady.strict import StrictState, StrictVerdict, VerdictInputs, judge_strict
from opwatch.sweep.band import make_greedy_model
from opwatch.sweep.figures import QUANTILES, compute_variation
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.outcome import HostBytes, LevelFigures, LevelOutcome, add_verdict_error
from opwatch.sweep.plan import SweepPace, compute_round_size
from opwatch.sweep.tails import estimate_percentile_errors

_UNITS, _SUPERBLOCKS = 1 << 20, 512
_MIN_BEYOND = 10
# A bout has as many I/Os as a round, so that the empty queue at its start and end does not count. It is split
# at intervals.
_FIRST_S, _BOUT_ROUNDS, _INTERVALS = 0.05, 1, 200


@dataclass(frozen=True, slots=True)
class VirtualLoad:
    """Random writes, optionally mixed with random reads."""

    io_bytes: int = 4096
    queue_depth: int = 32
    read_ratio: float = 0.0
    seed: int = 1

    @property
    def name(self) -> str:
        reads = f", {100 * self.read_ratio:g} % reads" if self.read_ratio else ""
        return f"random writes of {self.io_bytes} bytes{reads}, queue depth {self.queue_depth}"


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
    """Return the model of a profile at its simulated size."""
    unit = find_mapping_unit(profile)
    if io_bytes < unit or io_bytes & (io_bytes - 1):
        raise UsageError(
            f"--bs {io_bytes}: the model of {profile.name} needs a power of two, and at least its "
            f"mapping unit of {unit} bytes"
        )
    units = _UNITS
    own = profile.drive.get("superblock_bytes")
    own_pages = own // unit if own else None
    whole = profile.drive["user_bytes"]
    if whole <= units * unit:
        pages = make_drive(profile).core.config()["superblock_bytes"] // unit
        return ModelDrive(profile, 1.0, whole // unit // pages, pages, own_pages)
    pages = min(units // _SUPERBLOCKS, own_pages or units)
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


class _Burst(NamedTuple):
    """An uninterrupted run of the workload: the rounds completed in it, and all its latencies."""

    rounds: list[Round]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _LevelRun:
    """The results of a level's rounds.

    The last bout may contain further rounds, run before the verdict.
    """

    rounds: list[Round]
    bouts: list[_Burst]
    strict: StrictVerdict

    def select_slots(self, first: int) -> list[tuple[int, ...]]:
        """Return the latencies of the bouts that contain any round from `first` on."""
        kept, begin = [], 0
        for bout in self.bouts:
            if begin + len(bout.rounds) > first and begin < len(self.rounds):
                kept.append(bout.slots)
            begin += len(bout.rounds)
        return kept


def run_level(
    model: ModelDrive,
    level: OpLevel,
    load: VirtualLoad,
    pace: SweepPace,
    progress: Callable[[OpLevel, int], bool],
) -> LevelOutcome:
    """Run a level: purge, fill, rounds, verdict.

    `progress` is called after every round and returns whether to continue.
    """
    unit = find_mapping_unit(model.profile)
    used = max(round(level.usable_bytes * model.ratio) // unit, 1) * unit
    drive = make_drive(model.profile)
    for _ in range(pace.fill_passes):
        drive.run_load(Workload((Zone(0, used),), sequential=True), used // unit)
    small = replace(level, usable_bytes=used, flash_bytes=drive.read_geometry().physical_bytes)
    course = _run_rounds(drive, small, load, pace, lambda count: progress(level, count))
    return LevelOutcome(
        level=level,
        rounds=tuple(course.rounds),
        figures=add_verdict_error(_compute_figures(course, model, small), course.strict),
        pts=_judge_pts(course.rounds),
        strict=course.strict,
        is_model=True,
    )


def _run_rounds(
    drive: Drive, level: OpLevel, load: VirtualLoad, pace: SweepPace, goes_on: Callable[[int], bool]
) -> _LevelRun:
    player = _BurstRunner(drive, load, level.usable_bytes, compute_round_size(level, pace))
    rounds: list[Round] = []
    bouts: list[_Burst] = []
    while True:
        bouts.append(player.run_burst())
        for one in bouts[-1].rounds:
            rounds.append(one)
            strict = _judge_strict(drive, level, rounds)
            enough = len(rounds) >= pace.least_rounds and strict.state is StrictState.PASS
            if enough or len(rounds) >= pace.most_rounds or not goes_on(len(rounds)):
                return _LevelRun(rounds, bouts, strict)


def _judge_strict(drive: Drive, level: OpLevel, rounds: Sequence[Round]) -> StrictVerdict:
    counters = drive.read_counters()
    covered = counters["valid_bytes"] / level.usable_bytes
    spread = WriteSpread(covered, 0.0, "the model's map; uniform by its generator", UNIFORM)
    spare = counters["physical_bytes"] - level.usable_bytes
    return judge_strict(rounds, VerdictInputs(level.usable_bytes, spare, spread))


class _BurstRunner:
    """Plays the workload in bouts of several rounds.

    The virtual clock accepts a duration, not a byte count, so rounds are cut out of a bout by bytes.
    """

    def __init__(self, drive: Drive, load: VirtualLoad, used_bytes: int, round_bytes: int) -> None:
        self._drive, self._load, self._round_bytes = drive, load, round_bytes
        self._state = Workload((Zone(0, used_bytes),), rng=load.seed)
        self._seconds = _FIRST_S
        # Work done since the last complete round.
        self._begun = Round(0, 0.0, 0, None, 0)

    def run_burst(self) -> _Burst:
        interval_ns = max(round(self._seconds * 1e9) // _INTERVALS, 1)
        begun_ns = self._drive.now_ns()
        run = self._drive.run_timed(
            self._state,
            interval_ns * _INTERVALS / 1e9,
            io_bytes=self._load.io_bytes,
            queue_depth=self._load.queue_depth,
            read_ppm=round(self._load.read_ratio * 1e6),
            interval_ns=interval_ns,
        )
        parts = [
            Round(one.host_write_bytes, interval_ns / 1e9, one.ios, None, one.nand_write_bytes)
            for one in run.intervals
        ]
        # I/Os submitted in time but completed after the end, possibly delayed by garbage collection.
        late = sum(run.latency_slots) - sum(one.ios for one in run.intervals)
        drained_s = (self._drive.now_ns() - begun_ns - interval_ns * _INTERVALS) / 1e9
        parts.append(Round(0, max(drained_s, 0.0), late, None, 0))
        written = sum(part.host_bytes for part in parts)
        spent_s = sum(part.seconds for part in parts)
        self._seconds = _BOUT_ROUNDS * self._round_bytes * spent_s / max(written, 1)
        return _Burst(list(self._cut_rounds(parts, run.latency_ns(0.99))), run.latency_slots)

    def _cut_rounds(self, parts: Sequence[Round], tail_ns: int | None) -> Iterator[Round]:
        for part in parts:
            self._begun = merge_rounds([self._begun, part])
            if self._begun.host_bytes >= self._round_bytes:
                yield replace(self._begun, p99_ns=None if tail_ns is None else float(tail_ns))
                self._begun = Round(0, 0.0, 0, None, 0)


def _judge_pts(rounds: Sequence[Round]) -> PtsVerdict | None:
    try:
        return judge_pts({"IOPS": [one.iops for one in rounds]})
    except NotEnoughData:
        return None


def _compute_figures(course: _LevelRun, model: ModelDrive, level: OpLevel) -> LevelFigures:
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
    whole = window.whole
    return LevelFigures(
        host=HostBytes(firmware=whole.host_bytes),
        nand_bytes=whole.nand_bytes,
        waf=whole.waf,
        waf_error=_estimate_model_error(whole, model, level),
        iops=whole.iops,
        iops_cv=compute_variation([one.iops for one in rounds]),
        latency_by_trace=_compute_percentiles(course.select_slots(first)),
        latency_error_ratio=estimate_percentile_errors(course.select_slots(first), _compute_percentiles),
        missing=missing,
    )


def _estimate_model_error(whole: Round, model: ModelDrive, level: OpLevel) -> float | None:
    """Return the error of WAF due to the model's size."""
    return None if whole.waf is None or level.alpha is None else model.error_ratio(level.alpha) * whole.waf


def _compute_percentiles(slots: Sequence[tuple[int, ...]]) -> dict[str, float]:
    """Return the percentiles over all I/Os of the window; omit percentiles with too few I/Os beyond."""
    summed = tuple(sum(counts) for counts in zip(*slots, strict=True))
    run, total = TimedRun(1, (), summed), sum(summed)
    figures = {}
    for name, ratio in QUANTILES.items():
        latency = run.latency_ns(ratio)
        if latency is not None and total * (1 - ratio) >= _MIN_BEYOND:
            figures[name] = float(latency)
    return figures
