"""Run one part of a SNIA test, from the purge to the last load."""

from __future__ import annotations

import time

from opwatch.codec import encode
from opwatch.errors import OpwatchError
from opwatch.load.fio_arguments import LoadWindow, build_fill_arguments, derive_seed
from opwatch.load.timed import TimedLoad, build_timed_arguments
from opwatch.pts.loads import ROUND, PtsLoad, build_round_loads, build_stage_loads
from opwatch.pts.planning import SATURATION_PASSES
from opwatch.pts.record import PtsEnd, PtsRecord, judge_rounds
from opwatch.pts.samples import PtsSample, make_log_samples, make_report_sample
from opwatch.steady.pts_tests import PtsTest
from opwatch.tools.acting.fio.runner import FioRun
from opwatch.tools.acting.sweep.bench import SweepBench, require_alone
from opwatch.tools.acting.sweep.health import read_health
from opwatch.tools.acting.sweep.preparing import prepare_drive, require_free, require_healthy, wait_to_settle
from opwatch.tools.acting.sweep.sweeping import run_remaining

# No drive writes faster per second. The maximum of a load is announced before its speed is known.
_FASTEST = 32 * 10**9
# A load below this limit is not started, because the limit would determine its result.
_MIN_BYTES = 1 << 20
# Interval between health checks of the drive, between loads.
_HEALTH_S = 60.0
# A load that wrote this share of its limit did not end by time.
_ALL_OF_IT = 0.99


class _BudgetExhausted(Exception):
    """The write budget is exhausted."""


def run_tests(bench: SweepBench) -> None:
    """Run the remaining parts. The journal has the reason for an earlier end."""

    def run_part(place: int) -> None:
        record = PartRun(bench, place).run()
        bench.journal.append_entry("part", encode(record))
        bench.state.parts[place] = record

    run_remaining(bench, run_part)


class PartRun:
    """One part of a test, run once."""

    def __init__(self, bench: SweepBench, place: int) -> None:
        order = bench.state.request.test
        if order is None:
            raise OpwatchError(f"{bench.journal.name} is not an SNIA test")
        self._bench, self._place, self._order = bench, place, order
        self._part: PtsTest = order.parts[place]
        self._window = LoadWindow(bench.disk_claim.path, bench.state.request.levels[place].usable_bytes)
        self._logical = bench.disk.read_number("queue/logical_block_size") or 512
        self._samples: list[PtsSample] = []
        self._totals: list[PtsSample] = []
        self._begun = self._asked = self._ended = 0.0
        self._written = 0
        self._fio = ""
        # Saturation ends itself at this point, which may also exhaust the budget.
        self._saturation = _ALL_OF_IT * SATURATION_PASSES * bench.disk.size_bytes

    def run(self) -> PtsRecord:
        keeper, part = self._bench.keeper, self._part
        keeper.record_start(self._name_phase())
        prepare_drive(self._bench, self._place, self._show_step, self._name_phase("purge"))
        wait_to_settle(self._bench, self._show_step, self._name_phase("purge"))
        self._begun = self._asked = time.monotonic()
        try:
            self._run_precondition()
            end = self._run_rounds()
            self._run_stages()
        except _BudgetExhausted:
            is_saturated = part.name == "wsat" and self._written >= self._saturation
            end = PtsEnd.CAPACITY if is_saturated else PtsEnd.BUDGET
        keeper.record_end(self._name_phase())
        return PtsRecord(
            self._place, end, tuple(self._samples), tuple(self._totals), self._logical, self._fio
        )

    def _name_phase(self, step: str = "") -> str:
        """Return the phase name for recordings, optionally with a step."""
        return f"test {self._part.name}{f': {step}' if step else ''}"

    def _show_step(self, step: str) -> None:
        self._bench.talk.show_progress(f"test {self._part.name}: {step}")

    def _run_precondition(self) -> None:
        """Write the active range sequentially as often as the test requires."""
        bench, part = self._bench, self._part
        passes = self._order.count_fill_passes(part, bench.disk.size_bytes)
        for number in range(1, passes + 1):
            self._show_step(f"writing the active range in order, pass {number} of {passes}")
            bench.announce_step(self._place, "fill", self._window.size_bytes)
            bench.keeper.record_start(phase := self._name_phase(f"fill {number}"))
            seed = derive_seed(bench.state.request.secret, self._place, "fill", number)
            words = build_fill_arguments(self._window, seed, block_bytes=part.precondition_block_bytes or 0)
            self._run_alone(words, self._window.size_bytes)
            bench.keeper.record_end(phase)

    def _run_rounds(self) -> PtsEnd:
        """Run rounds until they are steady by SNIA's rule, or the maximum is reached."""
        bench, part, most = self._bench, self._part, self._order.most_rounds(self._part)
        loads = build_round_loads(self._order, part, self._logical)
        if not loads:
            return PtsEnd.DONE
        require_free(bench)
        rounds: list[list[PtsSample]] = []
        while len(rounds) < most:
            number = len(rounds) + 1
            bench.keeper.record_start(phase := self._name_phase(f"round {number}"))
            for at, load in enumerate(loads):
                here = f", {load.point_name}" if len(loads) > 1 else ""
                self._show_step(f"round {number} of at most {most}{here}{self._format_progress(rounds)}")
                self._run_load(load, number, at)
            bench.keeper.record_end(phase)
            rounds.append(self._samples[-len(loads) :])
            verdict = judge_rounds(self._order, part, rounds)
            if verdict and verdict.is_steady:
                return PtsEnd.STEADY
            if part.name == "wsat" and self._written >= self._saturation:
                return PtsEnd.CAPACITY
        return PtsEnd.ROUNDS

    def _format_progress(self, rounds: list[list[PtsSample]]) -> str:
        """Return the result of the last round at the point that determines steadiness."""
        followed = [
            sample for sample in (rounds[-1] if rounds else []) if sample.point_name in self._part.steady
        ]
        return f", {followed[0].iops:.0f} IOPS" if followed else ""

    def _run_stages(self) -> None:
        """Run the loads after the rounds."""
        for load in build_stage_loads(self._order, self._part):
            require_free(self._bench)
            self._bench.keeper.record_start(phase := self._name_phase(load.stage))
            for number in range(1, load.times + 1):
                self._show_step(f"{load.stage}, {number} of {load.times}")
                self._run_load(load, number, 0)
                if load.pause_s:
                    # The pause starts at the end of the load, so work since then is part of it.
                    self._bench.wait_unless_stopped(max(self._ended + load.pause_s - time.monotonic(), 0.0))
            self._bench.keeper.record_end(phase)

    def _run_load(self, load: PtsLoad, number: int, at: int) -> None:
        """Run one load. Its maximum writes are announced before, and the unused part is taken back
        afterwards."""
        bench = self._bench
        self._require_healthy()
        shape = TimedLoad(
            load.read_percent, load.block_bytes, load.is_random, load.seconds, load.depth, load.threads
        )
        most = 0
        if shape.write_share:
            left = bench.state.request.budget.write_bytes - bench.state.announced_bytes
            most = min(left, int(load.seconds * _FASTEST))
            if most < _MIN_BYTES:
                raise _BudgetExhausted
        bench.announce_step(self._place, ROUND if load.stage == ROUND else "stage", most)
        seed = derive_seed(bench.state.request.secret, self._place, load.stage, number, at)
        begin_s = time.monotonic() - self._begun
        run = self._run_alone(list(build_timed_arguments(shape, self._window, most, seed, load.every_s)), 0)
        report = run.report
        if report is None:
            raise OpwatchError(f"{bench.disk.name}: fio has reported nothing")
        self._fio = report.version
        written = report.total.bytes["write"]
        bench.return_budget(most - written)
        if most and written >= _ALL_OF_IT * most:
            raise _BudgetExhausted
        whole = make_report_sample(load, number, begin_s, report)
        if load.every_s:
            self._totals.append(whole)
            self._samples += make_log_samples(load, begin_s, run.logs)
        else:
            self._samples.append(whole)

    def _run_alone(self, words: list[str], least_bytes: int) -> FioRun:
        """Run fio, and check that no other process wrote during the run."""
        bench, name = self._bench, self._bench.disk.name
        then = bench.counting.read_written().get(name)
        run = bench.run_fio(words, least_bytes, lambda: None)
        self._ended = run.end_ns / 1e9
        now = bench.counting.read_written().get(name)
        written = run.report.total.bytes["write"] if run.report else 0
        self._written += written
        require_alone(None if then is None or now is None else now - then, written, name)
        return run

    def _require_healthy(self) -> None:
        """Check the drive's health if the last check is old."""
        if time.monotonic() - self._asked >= _HEALTH_S:
            require_healthy(self._bench, read_health(self._bench.counting))
            self._asked = time.monotonic()
