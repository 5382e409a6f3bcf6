"""Short probes at a level besides its rounds: reads and writes of an empty or full drive."""

from __future__ import annotations

from collections.abc import Callable

from opwatch.load.fio_arguments import LoadWindow, build_log_arguments, derive_seed
from opwatch.load.timed import TimedLoad, build_timed_arguments
from opwatch.sweep.figures import RoundEvidence, compute_probe_error, sum_iops_by_second
from opwatch.sweep.outcome import READ_EMPTY, READ_FULL, WRITE_EMPTY, LevelProbe, OpKind
from opwatch.sweep.plan import compute_probe_size
from opwatch.tools.acting.sweep.bench import SweepBench

# The error of a probe's rate is estimated from this number of parts.
_PARTS = 10


class LevelProbing:
    """Probes of one level, run on request. `probes` has the results."""

    def __init__(
        self, bench: SweepBench, place: int, say: Callable[[str], None], phase: Callable[[str], str]
    ) -> None:
        self._bench, self._place, self._say, self._phase = bench, place, say, phase
        self.probes: list[LevelProbe] = []

    def probe_empty(self, window: LoadWindow) -> None:
        """Probe reads of empty blocks, and writes that cause no garbage collection."""
        self._run_load(READ_EMPTY, window, 0)
        self._run_load(WRITE_EMPTY, window, compute_probe_size(self._bench.state.request.levels[self._place]))

    def probe_full(self, window: LoadWindow) -> None:
        self._run_load(READ_FULL, window, 0)

    def _run_load(self, kind: OpKind, window: LoadWindow, most_bytes: int) -> None:
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
        self._say(f"probing ({name}) for {load.seconds:g} s")
        bench.announce_step(self._place, "probe", most_bytes)
        bench.keeper.record_start(phase := self._phase(name))
        words = build_log_arguments(max(round(1000 * load.seconds / _PARTS), 1))
        seed = derive_seed(request.secret, self._place, "probe", name)
        run = bench.run_fio([*words, *build_timed_arguments(load, window, most_bytes, seed)], 0, lambda: None)
        bench.keeper.record_end(phase)
        assert run.report
        total = run.report.total
        bench.return_budget(most_bytes - total.bytes["write"])
        error = compute_probe_error(sum_iops_by_second([RoundEvidence(run.report, run.logs, run.cpu_s)]))
        ios = sum(total.requests.values())
        self.probes.append(LevelProbe(*kind, ios, total.seconds, run.report.mean_ns, run.cpu_s, error))
