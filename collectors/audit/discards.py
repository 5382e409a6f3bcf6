"""The discard tracer: BPF maps -> a Trace of what became of discards, layer by layer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from opwatch.closing import Closing
from opwatch.collectors.audit.discard_programs import explained, loader, pack_granule
from opwatch.collectors.block.diskstats import StatReader, is_idle
from opwatch.host.device import BlockDevice
from opwatch.trace.stat import StatSample
from opwatch.trim.audit.flow import DiscardLoss, Flow, Stage, Trace, decode_flows, decode_origins
from opwatch.trim.audit.programs import AUDITED, CLAIMING, Following, absent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from opwatch._native import Discards

# How often the counters are looked at while we wait for them to stand still.
LOOK_S = 0.05
# Device mapper tells nobody how many discards it has in flight. What it was sent and did not end is waited
# for while anything moves, and so long after that: a pool whose metadata are slow thinks for seconds.
_STILL_S = 10.0


class DiscardTracer(Closing):
    """Follows discards from entering to leaving. `granules` are (bytes, offset) of what a disk frees as a
    whole; `programs` come from loader(), and have decided already what is followed; `chain` is the block
    tracer's, which then calls the programs of issue and end."""

    def __init__(
        self,
        disks: Sequence[BlockDevice],
        granules: Mapping[str, tuple[int, int]] | None = None,
        following: Following = AUDITED,
        *,
        stalls: bool = False,
        programs: Discards | None = None,
        chain: Callable[[int, int], None] | None = None,
    ) -> None:
        packed = b"".join(pack_granule(name, *granule) for name, granule in (granules or {}).items())
        self._native = programs or loader(following, stalls=stalls)()
        self._letting_go: threading.Thread | None = None
        self._chain = chain
        # It is not imported at the top: what decodes works without the extension.
        from opwatch._native import ProbeError

        try:
            if chain:
                chain(*self._native.chained())
            self._native.attach(packed)
        except ProbeError as error:
            self._native.close()
            raise explained(error) from error
        self._disks = {disk.name: disk for disk in disks}
        self._stats = {disk.name: StatReader(disk) for disk in disks}
        self._before = self._read_stats()

    def follow(self, pid: int) -> None:
        """Take the discards of a process of this PID namespace for ours."""
        self._native.follow(pid)

    def absent(self) -> frozenset[str]:
        """Programs that an audit misses."""
        return absent(self._native.attached())

    def read(self) -> Trace:
        """Everything counted so far."""
        return Trace(
            flows=tuple(decode_flows(self._native.flows())),
            origins=tuple(decode_origins(self._native.origins())),
            absent=self.absent(),
            loss=DiscardLoss(*self._native.loss()),
            misses=sum(program[4] for program in self._native.programs()),
            stats=self._grown(),
            claims_seen=any(name in CLAIMING and not error for name, error in self._native.attached()),
        )

    def wait_quiet(self, quiet_s: float, patience_s: float, stop: Callable[[], bool] = bool) -> bool:
        """Wait until nothing was counted for a while, and nothing is in flight; False when patience ended
        first, or `stop` said so."""
        end = time.monotonic() + patience_s
        last, since = self._of_ours(), time.monotonic()
        while not self._is_over(last, time.monotonic() - since, quiet_s):
            if time.monotonic() > end or stop():
                return False
            time.sleep(LOOK_S)
            now = self._of_ours()
            if now != last:
                last, since = now, time.monotonic()
        return not _unended(last)

    def _is_over(self, flows: Sequence[Flow], still_s: float, quiet_s: float) -> bool:
        if still_s < quiet_s or self._in_flight(flows):
            return False
        return still_s >= _STILL_S or not _unended(flows)

    def programs(self) -> list[tuple[str, int, int, int, int]]:
        """(name, id, runs, run_ns, recursion misses) of each attached program."""
        return self._native.programs()

    def let_go(self) -> None:
        """Begin to close: a kernel may take as long to let go of functions as what was read takes to be
        judged. Nothing can be read any more."""
        if not self._letting_go:
            self._letting_go = threading.Thread(target=self._close)
            self._letting_go.start()

    def close(self) -> None:
        if self._letting_go:
            self._letting_go.join()
        else:
            self._close()

    def _close(self) -> None:
        if self._chain:
            self._chain(-1, -1)
            self._chain = None
        self._native.close()
        for stat in self._stats.values():
            stat.close()

    def _of_ours(self) -> list[Flow]:
        """What was counted of the disks that we look at; others may never be quiet."""
        return [flow for flow in decode_flows(self._native.flows()) if flow.disk in self._stats]

    def _in_flight(self, flows: Sequence[Flow]) -> bool:
        """Whether requests that we saw issued have not ended, by our own count of the disks watched."""
        issued = dict.fromkeys(self._stats, 0)
        for flow in flows:
            if flow.stage in (Stage.ISSUED, Stage.REQUEUED, Stage.DONE):
                issued[flow.disk] += flow.amount.bytes * (1 if flow.stage is Stage.ISSUED else -1)
        # An end that was not seen would be waited for in vain: the kernel knows better, where it counts.
        return any(left > 0 and not is_idle(self._disks[name]) for name, left in issued.items())

    def _read_stats(self) -> dict[str, StatSample | None]:
        return {name: reader.read() for name, reader in self._stats.items()}

    def _grown(self) -> dict[str, tuple[int, int]]:
        """What the kernel counted since the start, of the disks where it counts discards."""
        grown = {}
        for name, now in self._read_stats().items():
            before = self._before[name]
            if before and now and "discard" in now.requests:
                grown[name] = (
                    now.requests["discard"] - before.requests.get("discard", 0),
                    now.bytes["discard"] - before.bytes.get("discard", 0),
                )
        return grown


def _unended(flows: Sequence[Flow]) -> bool:
    """Whether a device of device mapper that takes bios was sent some that did not end."""
    by_request = {flow.disk for flow in flows if flow.stage is Stage.ISSUED}
    sent: Counter[str] = Counter()
    for flow in flows:
        if flow.disk.startswith("dm-") and flow.disk not in by_request:
            sent[flow.disk] += flow.amount.bytes * _ENDS.get(flow.stage, 0)
    return any(left > 0 for left in sent.values())


_ENDS = {Stage.BIO: 1, Stage.BIO_DONE: -1}
