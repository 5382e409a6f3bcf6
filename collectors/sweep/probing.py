"""Short probes at a level besides its rounds: reads and writes of an empty or full drive."""

from __future__ import annotations

from collections.abc import Callable

from opwatch.collectors.sweep.bench import SweepBench
from opwatch.load.timed import TimedLoad, timed_words
from opwatch.load.words import LoadWindow, log_words, seed_of
from opwatch.sweep.figures import RoundEvidence, probe_error, seconds_of
from opwatch.sweep.outcome import READ_EMPTY, READ_FULL, WRITE_EMPTY, LevelProbe, OpKind
from opwatch.sweep.plan import probe_size

# The error of a probe's rate is estimated from this number of parts.
_PARTS = 10


class LevelProbing:
    """Probes of one level, run on request. `probes` has the results."""

    def __init__(
        self, bench: SweepBench, place: int, say: Callable[[str], None], phase: Callable[[str], str]
    ) -> None:
        self._bench, self._place, self._say, self._phase = bench, place, say, phase
        self.probes: list[LevelProbe] = []

    def of_empty(self, window: LoadWindow) -> None:
        """Probe reads of empty blocks, and writes that cause no garbage collection."""
        self._do(READ_EMPTY, window, 0)
        self._do(WRITE_EMPTY, window, probe_size(self._bench.state.request.levels[self._place]))

    def of_full(self, window: LoadWindow) -> None:
        self._do(READ_FULL, window, 0)

    def _do(self, kind: OpKind, window: LoadWindow, most_bytes: int) -> None:
        bench, request = self._bench, self._bench.state.request
        name = f"{kind.op}, {'full' if kind.is_full else 'empty'}"
        options = request.pattern.jobs[0].options
        load = TimedLoad(
            read_percent=100 if kind.op == "read" else 0,
            block_bytes=int(options["bs"]),
            is_random=True,
            seconds=request.pace.probe_s,
            depth=int(options.get("iodepth", "1")),
            threads=1,
        )
        self._say(f"probes it ({name}) for {load.seconds:g} s")
        bench.announce(self._place, "probe", most_bytes)
        bench.keeper.began(phase := self._phase(name))
        words = log_words(max(round(1000 * load.seconds / _PARTS), 1))
        seed = seed_of(request.secret, self._place, "probe", name)
        run = bench.run_fio([*words, *timed_words(load, window, most_bytes, seed)], 0, lambda: None)
        bench.keeper.ended(phase)
        assert run.report
        total = run.report.total
        bench.take_back(most_bytes - total.bytes["write"])
        error = probe_error(seconds_of([RoundEvidence(run.report, run.logs, run.cpu_s)]))
        ios = sum(total.requests.values())
        self.probes.append(LevelProbe(kind, ios, total.seconds, run.report.mean_ns, run.cpu_s, error))
