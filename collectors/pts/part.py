"""Run one part of a SNIA test, from the purge to the last load."""

from __future__ import annotations

import time

from opwatch.collectors.fio.runner import FioRun
from opwatch.collectors.sweep.bench import SweepBench, require_alone
from opwatch.collectors.sweep.health import read_health
from opwatch.collectors.sweep.preparing import prepare, require_free, require_well, settle
from opwatch.collectors.sweep.sweeping import do_what_is_left
from opwatch.errors import OpwatchError
from opwatch.load.timed import TimedLoad, timed_words
from opwatch.load.words import LoadWindow, fill_words, seed_of
from opwatch.pts.loads import ROUND, PtsLoad, round_loads, stage_loads
from opwatch.pts.planning import SATURATED
from opwatch.pts.record import PtsEnd, PtsRecord, verdict_of
from opwatch.pts.samples import PtsSample, sample_of_report, samples_of_logs
from opwatch.steady.pts_tests import PtsTest

# No drive writes faster per second. The maximum of a load is announced before its speed is known.
_FASTEST = 32 * 10**9
# A load below this limit is not started, because the limit would determine its result.
_LEAST_BYTES = 1 << 20
# Interval between health checks of the drive, between loads.
_HEALTH_S = 60.0
# A load that wrote this share of its limit did not end by time.
_ALL_OF_IT = 0.99


class _BudgetGone(Exception):
    """The write budget is exhausted."""


def run_tests(bench: SweepBench) -> None:
    """Run the remaining parts. The journal has the reason for an earlier end."""

    def part(place: int) -> None:
        record = PartRun(bench, place).run()
        bench.journal.append("part", record.document())
        bench.state.parts[place] = record

    do_what_is_left(bench, part)


class PartRun:
    """One part of a test, run once."""

    def __init__(self, bench: SweepBench, place: int) -> None:
        order = bench.state.request.test
        if order is None:
            raise OpwatchError(f"{bench.journal.name} is no test of SNIA's")
        self._bench, self._place, self._order = bench, place, order
        self._part: PtsTest = order.parts[place]
        self._window = LoadWindow(bench.whole_disk.path, bench.state.request.levels[place].usable_bytes)
        self._logical = bench.disk.number("queue/logical_block_size") or 512
        self._samples: list[PtsSample] = []
        self._totals: list[PtsSample] = []
        self._begun = self._asked = self._ended = 0.0
        self._written = 0
        self._fio = ""
        # Saturation ends itself at this point, which may also exhaust the budget.
        self._saturation = _ALL_OF_IT * SATURATED * bench.disk.size_bytes

    def run(self) -> PtsRecord:
        keeper, part = self._bench.keeper, self._part
        keeper.began(self._phase())
        prepare(self._bench, self._place, self._say, self._phase("purge"))
        settle(self._bench, self._say, self._phase("purge"))
        self._begun = self._asked = time.monotonic()
        try:
            self._precondition()
            end = self._rounds()
            self._stages()
        except _BudgetGone:
            is_saturated = part.name == "wsat" and self._written >= self._saturation
            end = PtsEnd.CAPACITY if is_saturated else PtsEnd.BUDGET
        keeper.ended(self._phase())
        return PtsRecord(
            self._place, end, tuple(self._samples), tuple(self._totals), self._logical, self._fio
        )

    def _phase(self, step: str = "") -> str:
        """Return the phase name for recordings, optionally with a step."""
        return f"test {self._part.name}{f': {step}' if step else ''}"

    def _say(self, step: str) -> None:
        self._bench.talk.show(f"test {self._part.name}: {step}")

    def _precondition(self) -> None:
        """Write the active range sequentially as often as the test requires."""
        bench, part = self._bench, self._part
        passes = self._order.fill_passes(part, bench.disk.size_bytes)
        for number in range(1, passes + 1):
            self._say(f"writes the active range in order, pass {number} of {passes}")
            bench.announce(self._place, "fill", self._window.size_bytes)
            bench.keeper.began(phase := self._phase(f"fill {number}"))
            seed = seed_of(bench.state.request.secret, self._place, "fill", number)
            words = fill_words(self._window, seed, block_bytes=part.precondition_block_bytes or 0)
            self._alone(words, self._window.size_bytes)
            bench.keeper.ended(phase)

    def _rounds(self) -> PtsEnd:
        """Run rounds until they are steady by SNIA's rule, or the maximum is reached."""
        bench, part, most = self._bench, self._part, self._order.most_rounds(self._part)
        loads = round_loads(self._order, part, self._logical)
        if not loads:
            return PtsEnd.DONE
        require_free(bench)
        rounds: list[list[PtsSample]] = []
        while len(rounds) < most:
            number = len(rounds) + 1
            bench.keeper.began(phase := self._phase(f"round {number}"))
            for at, load in enumerate(loads):
                here = f", {load.point}" if len(loads) > 1 else ""
                self._say(f"round {number} of {most} at most{here}{self._so_far(rounds)}")
                self._do(load, number, at)
            bench.keeper.ended(phase)
            rounds.append(self._samples[-len(loads) :])
            verdict = verdict_of(self._order, part, rounds)
            if verdict and verdict.is_steady:
                return PtsEnd.STEADY
            if part.name == "wsat" and self._written >= self._saturation:
                return PtsEnd.CAPACITY
        return PtsEnd.ROUNDS

    def _so_far(self, rounds: list[list[PtsSample]]) -> str:
        """Return the result of the last round at the point that determines steadiness."""
        followed = [sample for sample in (rounds[-1] if rounds else []) if sample.point in self._part.steady]
        return f", {followed[0].iops:.0f} IOPS" if followed else ""

    def _stages(self) -> None:
        """Run the loads after the rounds."""
        for load in stage_loads(self._order, self._part):
            require_free(self._bench)
            self._bench.keeper.began(phase := self._phase(load.stage))
            for number in range(1, load.times + 1):
                self._say(f"{load.stage}, {number} of {load.times}")
                self._do(load, number, 0)
                if load.pause_s:
                    # The pause starts at the end of the load, so work since then is part of it.
                    self._bench.pass_time(max(self._ended + load.pause_s - time.monotonic(), 0.0))
            self._bench.keeper.ended(phase)

    def _do(self, load: PtsLoad, number: int, at: int) -> None:
        """Run one load. Its maximum writes are announced before, and the unused part is taken back
        afterwards."""
        bench = self._bench
        self._require_well()
        shape = TimedLoad(
            load.read_percent, load.block_bytes, load.is_random, load.seconds, load.depth, load.threads
        )
        most = 0
        if shape.write_share:
            left = bench.state.request.budget.write_bytes - bench.state.announced_bytes
            most = min(left, int(load.seconds * _FASTEST))
            if most < _LEAST_BYTES:
                raise _BudgetGone
        bench.announce(self._place, ROUND if load.stage == ROUND else "stage", most)
        seed = seed_of(bench.state.request.secret, self._place, load.stage, number, at)
        begin_s = time.monotonic() - self._begun
        run = self._alone(list(timed_words(shape, self._window, most, seed, load.every_s)), 0)
        report = run.report
        if report is None:
            raise OpwatchError(f"{bench.disk.name}: fio has reported nothing")
        self._fio = report.version
        written = report.total.bytes["write"]
        bench.take_back(most - written)
        if most and written >= _ALL_OF_IT * most:
            raise _BudgetGone
        whole = sample_of_report(load, number, begin_s, report)
        if load.every_s:
            self._totals.append(whole)
            self._samples += samples_of_logs(load, begin_s, run.logs)
        else:
            self._samples.append(whole)

    def _alone(self, words: list[str], least_bytes: int) -> FioRun:
        """Run fio, and check that no other process wrote during the run."""
        bench, name = self._bench, self._bench.disk.name
        then = bench.counting.written().get(name)
        run = bench.run_fio(words, least_bytes, lambda: None)
        self._ended = run.end_ns / 1e9
        now = bench.counting.written().get(name)
        written = run.report.total.bytes["write"] if run.report else 0
        self._written += written
        require_alone(None if then is None or now is None else now - then, written, name)
        return run

    def _require_well(self) -> None:
        """Check the drive's health if the last check is old."""
        if time.monotonic() - self._asked >= _HEALTH_S:
            require_well(self._bench, read_health(self._bench.counting))
            self._asked = time.monotonic()
