"""Run one level of a sweep, from the purge to the verdict."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

from opwatch.collectors.firmware.counting import POLL_S
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.journal.results import LevelRecord
from opwatch.load.distribution import find_write_parts
from opwatch.load.fio_arguments import (
    LOGS,
    LoadWindow,
    build_fill_arguments,
    build_round_arguments,
    build_sprandom_arguments,
    derive_seed,
)
from opwatch.samples.end import End
from opwatch.samples.measurement_run import MeasurementRun, RunPlan
from opwatch.steady.coverage import WriteSpread
from opwatch.steady.placing import FileRun
from opwatch.steady.rounds import Round
from opwatch.steady.strict import StrictState, StrictVerdict, VerdictInputs, judge_strict
from opwatch.sweep.figures import (
    RoundEvidence,
    WindowEvidence,
    compute_figures,
    make_round,
    make_verdict_inputs,
    merge_probe_rounds,
)
from opwatch.sweep.methods import FILE_METHODS
from opwatch.sweep.outcome import WRITE_FULL
from opwatch.sweep.plan import (
    SweepSpeed,
    compute_fill_size,
    compute_round_size,
    compute_sprandom_ratio,
    estimate_seconds_left,
)
from opwatch.times import format_estimate
from opwatch.tools.acting.addresses.lowering import lower_address, require_changeable
from opwatch.tools.acting.fio.runner import FioProcess
from opwatch.tools.acting.sweep.bench import TICK_S, SweepBench, require_alone, require_written
from opwatch.tools.acting.sweep.files import create_level_files
from opwatch.tools.acting.sweep.health import make_health, read_health
from opwatch.tools.acting.sweep.namespace import create_level_namespace
from opwatch.tools.acting.sweep.offers import describe_purge
from opwatch.tools.acting.sweep.partition import create_level_partition
from opwatch.tools.acting.sweep.preparing import prepare_drive, require_free, require_healthy, wait_to_settle
from opwatch.tools.acting.sweep.probing import LevelProbing
from opwatch.tools.acting.sweep.seconds import LevelSeconds
from opwatch.tools.acting.sweep.tracing import LevelTrace, derive_level_interval
from opwatch.trace.trust import Reading
from opwatch.units import format_capacity
from opwatch.waf.measure import MeasuredWaf, Measurement

# A random mix may write a little less than its share in a round.
_MIN_WRITTEN_SHARE = 0.8


class LevelRun:
    """One level of a sweep, run once.

    The rounds run inside a Course, which polls the drive's counters before and during the rounds, and until
    its pages include all writes.
    """

    def __init__(self, bench: SweepBench, place: int) -> None:
        request = bench.state.request
        self._bench, self._place = bench, place
        self._level = request.levels[place]
        self._request = request
        self._window = LoadWindow("", 0)
        self._round_bytes = compute_round_size(self._level, request.pace)
        self._parts = find_write_parts(request.pattern, self._level.load_bytes)
        self._filled, self._fill_s = 0, 0.0
        self._probing = LevelProbing(bench, place, self._show_step, self._name_phase)
        self._evidence: list[RoundEvidence] = []
        self._rounds: list[Round] = []
        # Polls of the course and readings of the trace, at the start of each round and at the end.
        self._polls: list[int] = []
        self._readings: list[Reading | None] = []
        # Bytes written to the drive by the kernel's count at the same times.
        self._counted: list[int | None] = []
        # Start and end of each round, in monotonic time.
        self._begun_ns: list[int] = []
        self._ended_ns: list[int] = []
        self._seconds: LevelSeconds | None = None
        self._process: FioProcess | None = None
        self._course: MeasurementRun | None = None
        # The drive's answers at the end of the last round.
        self._look: FirmwareSample | None = None
        # A signal arrived after the rounds, while waiting for the drive's pages.
        self.is_cut_short = False

    def run(self) -> LevelRecord:
        keeper, phase = self._bench.keeper, f"level {self._level.label}"
        keeper.record_start(phase)
        if self._request.method == "max-address":
            require_changeable(self._bench.disk_claim)
        self._prepare_drive()
        with self._limit_drive() as (window, runs):
            self._window = window
            record = self._measure_level(runs)
        keeper.record_end(phase)
        return record

    @contextlib.contextmanager
    def _limit_drive(self) -> Iterator[tuple[LoadWindow, list[FileRun]]]:
        """Limit the drive by the requested method, and yield the target window."""
        bench, level, method = self._bench, self._level, self._request.method
        if method in FILE_METHODS:
            with create_level_files(bench, self._place, level) as (window, runs):
                yield window, runs
        elif method == "max-address":
            with lower_address(bench.disk_claim, bench.journal, bench.state, level.usable_bytes) as path:
                yield LoadWindow(path, level.usable_bytes), []
        elif method == "partition":
            with create_level_partition(bench, level.usable_bytes) as path:
                yield LoadWindow(path, level.usable_bytes), []
        elif method == "namespace":
            with create_level_namespace(bench, level.usable_bytes) as path:
                yield LoadWindow(path, level.usable_bytes), []
        elif self._request.scenario and level.scale.capacity_bytes < bench.disk.size_bytes:
            # The partition hides the reserved space.
            with create_level_partition(bench, level.scale.capacity_bytes) as path:
                yield LoadWindow(path, level.usable_bytes), []
        else:
            yield LoadWindow(bench.disk_claim.path, level.usable_bytes), []

    def _measure_level(self, runs: list[FileRun]) -> LevelRecord:
        bench = self._bench
        if self._request.pace.probe_s:
            self._probing.probe_empty(self._window)
        trace = LevelTrace(bench.claim.devices, bench.disk, self._level.load_bytes, runs)
        try:
            self._fill_drive(trace)
            if self._request.pace.probe_s:
                self._probing.probe_full(self._window)
            return self._run_rounds(trace)
        finally:
            trace.close()

    def _name_phase(self, step: str) -> str:
        """Return the phase name of a step for recordings."""
        return f"level {self._level.label}: {step}"

    def _show_step(self, step: str) -> None:
        request = self._request
        at = f"level {self._place + 1} of {len(request.levels)} ({self._level.label})"
        self._bench.talk.show_progress(f"{at}: {step}")

    def _prepare_drive(self) -> None:
        """Check that the drive is free, purge the drive, and wait until it settles."""
        level, request = self._level, self._request
        prepare_drive(self._bench, self._place, self._show_step, self._name_phase("purge"))
        self._bench.talk.print_message(
            f"level {self._place + 1} of {len(request.levels)}: {level.label}, "
            f"{format_capacity(level.usable_bytes)} in use"
        )
        wait_to_settle(self._bench, self._show_step, self._name_phase("purge"))

    def _fill_drive(self, trace: LevelTrace) -> None:
        pace = self._request.pace
        n_bytes, passes = compute_fill_size(self._level, pace)
        for number in range(1, passes + 1):
            way = "with sprandom" if pace.sprandom else "in order"
            self._show_step(f"filling {way}, pass {number} of {passes}")
            self._bench.announce_step(self._place, "fill", n_bytes)
            self._bench.keeper.record_start(phase := self._name_phase(f"fill {number}"))
            begun = time.monotonic()
            seed = derive_seed(self._request.secret, self._place, "fill", number)
            words = (
                build_sprandom_arguments(self._window, compute_sprandom_ratio(self._level), seed)
                if pace.sprandom
                else build_fill_arguments(self._window, seed)
            )
            self._bench.run_fio(words, self._window.size_bytes, lambda: trace.process_changes(is_fill=True))
            self._bench.keeper.record_end(phase)
            self._filled, self._fill_s = self._window.size_bytes, time.monotonic() - begun
        trace.process_changes(is_fill=True)

    def _run_rounds(self, trace: LevelTrace) -> LevelRecord:
        """Run the rounds between polls of the drive."""
        bench, request = self._bench, self._request
        require_free(bench)
        if request.scenario is not None:
            self._seconds = LevelSeconds(trace.read_now)
        rounds = RoundClock(self, trace)
        plan = RunPlan(
            idle_poll_s=POLL_S,
            busy_poll_s=bench.counting.busy_poll_s,
            settle_s=request.patience_s,
            seconds=0,
            refresh_s=request.refresh_s,
            on_interrupt="ends the sweep and keeps this level's results",
        )
        course = MeasurementRun(
            lambda: bench.counting.poll_counters(self._record_poll),
            bench.is_same_device,
            rounds,
            bench.talk,
            plan,
        )
        self._course = course
        try:
            end = course.measure_work(lambda: self.begin_round(trace))
            bench.require_not_stopped(end)
            if course.trail.nand:
                end = course.wait_for_pages(has_work=True)
                self.is_cut_short = end is End.SIGNAL
            if not self.is_cut_short:
                bench.require_not_stopped(end)
        finally:
            if self._process:
                self._process.stop()
                self._process.close()
        return self._make_record(trace)

    def begin_round(self, trace: LevelTrace) -> None:
        bench, number = self._bench, len(self._rounds) + 1
        if not self._polls:
            self._record_counters(trace)
        elif bench.counting.latest and self._look:
            # Uses the poll at the end of the last round, because another poll takes time.
            require_healthy(bench, make_health(bench.counting.latest, self._look))
        bench.announce_step(self._place, "round", self._round_bytes)
        self._begun_ns.append(time.monotonic_ns())
        bench.keeper.record_start(self._name_phase(f"round {number}"))
        seed = derive_seed(self._request.secret, self._place, "round", number)
        words = build_round_arguments(self._request.pattern, self._window, self._round_bytes, seed, LOGS)
        self._process = FioProcess(words, bench.folder)
        bench.time.watch_process(self._process.process)
        if self._seconds:
            self._seconds.begin_round()
        self._show_step(
            f"round {number} of at most {self._request.pace.most_rounds}{self._format_progress()}"
        )

    def _format_progress(self) -> str:
        if not self._rounds:
            return ""
        last = self._rounds[-1]
        waf = f", WAF {last.waf:.3g}" if last.waf is not None else ""
        return f", {last.iops:.0f} IOPS{waf}{self._format_time_left()}"

    def _format_time_left(self) -> str:
        """Return the estimated remaining time of the sweep at this level's pace, or nothing if unknown."""
        request, rounds = self._request, len(self._rounds)
        round_s = (time.monotonic_ns() - self._begun_ns[0]) / 1e9 / rounds
        speed = SweepSpeed(
            fill_bytes_per_s=self._filled / self._fill_s if self._fill_s else None,
            round_bytes_per_s=self._round_bytes / round_s,
        )
        levels = [request.levels[place] for place in self._bench.state.remaining_levels]
        purge = describe_purge(self._bench.disk, request.purge)
        left = estimate_seconds_left(
            levels, request.method, request.pace, speed, rounds, purge=purge, parts=self._parts
        )
        return f", {format_estimate(left[0])} to {format_estimate(left[1])} left" if left else ""

    def end_round(self, trace: LevelTrace) -> bool:
        """Process the results of fio. Return whether this was the last round."""
        assert self._process
        run = self._process.wait_for_result()
        self._process = None
        require_written(run, int(_MIN_WRITTEN_SHARE * self._round_bytes), self._bench.disk.name)
        trace.process_changes(is_fill=False)
        self._record_counters(trace)
        self._bench.keeper.record_end(self._name_phase(f"round {len(self._rounds) + 1}"))
        self._ended_ns.append(time.monotonic_ns())
        assert run.report
        then, now = self._counted[-2:]
        counted = None if then is None or now is None else now - then
        is_mounted = self._request.place is not None
        require_alone(counted, run.report.total.bytes["write"], self._bench.disk.name, is_mounted=is_mounted)
        self._evidence.append(RoundEvidence(run.report, run.logs, run.cpu_s))
        measured = self._measure_between(len(self._polls) - 2, len(self._polls) - 1)
        self._rounds.append(make_round(self._evidence[-1], measured))
        if self._seconds:
            self._seconds.end_round(self._rounds[-1].host_bytes, self._rounds[-1].seconds)
        return self._is_enough(trace)

    def _record_counters(self, trace: LevelTrace) -> None:
        """Record the drive's counters and the trace while nothing is in flight.

        Polls twice where that is cheap: the first poll is complete if the second shows no more writes.
        """
        assert self._course
        counting, trail = self._bench.counting, self._course.trail
        trail.add_poll(counting.poll_counters(self._record_poll))
        self._polls.append(len(trail.moments) - 1)
        if counting.reads_pages:
            trail.add_poll(counting.poll_counters(self._record_poll))
        self._readings.append(trace.read_settled())
        self._counted.append(counting.read_written().get(self._bench.disk.name))

    def _record_poll(self, look: FirmwareSample) -> None:
        self._look = look
        self._bench.keeper.record_poll(look)

    def _measure_between(self, begin: int, end: int) -> MeasuredWaf | None:
        assert self._course
        trail = self._course.trail
        if not trail.nand:
            return None
        refresh = self._request.refresh_s
        refresh_ns = None if refresh is None else int(refresh * 1e9)
        return Measurement(trail, self._polls[begin], self._polls[end], refresh_ns=refresh_ns).make_result()

    def _make_ground(self, trace: LevelTrace) -> VerdictInputs:
        level = self._level
        if not self._request.pace.fill_passes:
            return make_verdict_inputs(level, self._measure_round_spread(trace))
        filled = None if self._request.pace.sprandom else self._filled / level.load_bytes
        return make_verdict_inputs(level, trace.measure_spread(filled, parts=self._parts))

    def _measure_round_spread(self, trace: LevelTrace) -> WriteSpread:
        """Return the distribution of the rounds' writes on a drive without a fill.

        Uniform random writes leave a share untouched that shrinks exponentially with each turn. The trace
        checks whether they are uniform.
        """
        turns = sum(one.host_bytes for one in self._rounds) / self._level.load_bytes
        covered = -math.expm1(-turns) if self._request.pattern.is_uniform else 0.0
        return trace.measure_spread(covered, parts=self._parts, by=f"{turns:.3g} random passes")

    def _is_enough(self, trace: LevelTrace) -> bool:
        """Return whether the drive is in measurable steady state, or has done the maximum of rounds."""
        pace = self._request.pace
        if len(self._rounds) >= pace.most_rounds:
            return True
        if len(self._rounds) < pace.least_rounds:
            return False
        return judge_strict(self._rounds, self._make_ground(trace)).state is not StrictState.NOT_REACHED

    def _make_record(self, trace: LevelTrace) -> LevelRecord:
        ground = self._make_ground(trace)
        verdict = judge_strict(self._rounds, ground)
        first, count = _choose_window(verdict, len(self._rounds))
        health = read_health(self._bench.counting)
        begin, end = first - 1, first - 1 + count
        if verdict.state is not StrictState.NOT_REACHED:
            self._bench.keeper.record_phase(
                self._name_phase("steady"), self._begun_ns[begin], self._ended_ns[end - 1]
            )
        figures = compute_figures(
            WindowEvidence(
                rounds=self._evidence[begin:end],
                measured=self._measure_between(begin, end),
                traced=derive_level_interval(self._readings[begin], self._readings[end]),
                why_untraced=trace.why_untraced or None,
                celsius=health.celsius,
            )
        )
        if self._request.pace.probe_s:
            self._probing.probes.append(merge_probe_rounds(WRITE_FULL, self._evidence[begin:end]))
        seconds = self._seconds.seconds if self._seconds else ()
        return LevelRecord(
            self._place, tuple(self._rounds), ground, figures, tuple(self._probing.probes), seconds
        )

    def drain_trace(self, trace: LevelTrace) -> None:
        trace.process_changes(is_fill=False)
        if self._seconds:
            self._seconds.record_second()


def _choose_window(verdict: StrictVerdict, rounds: int) -> tuple[int, int]:
    """Return (first round, number of rounds) for the figures: the verdict's window, or the last five."""
    if verdict.window:
        return verdict.window.first_round, verdict.window.rounds
    count = min(5, rounds)
    return rounds - count + 1, count


class RoundClock:
    """Clock of a course with one round after another.

    The end of a round starts the next round, and the end of the last round is the end of the work.
    """

    def __init__(self, level: LevelRun, trace: LevelTrace) -> None:
        self._level, self._trace = level, trace
        self._time = level._bench.time

    def now(self) -> float:
        return self._time.now()

    def wait_until(self, until: float) -> End:
        while True:
            end = self._time.wait_until(min(until, self._time.now() + TICK_S))
            self._level.drain_trace(self._trace)
            if end is End.COMMAND:
                self._time.reap()
                if self._level.end_round(self._trace):
                    return End.COMMAND
                self._level.begin_round(self._trace)
            elif end is not End.TICK or self._time.now() >= until:
                return end

    def reap(self) -> None:
        """Do nothing, because the last round has been reaped already."""
