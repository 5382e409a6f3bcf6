"""Discard tracer: converts BPF maps to a Trace of discards, layer by layer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from opwatch.closing import Closable
from opwatch.collectors.audit.discard_programs import explain_load_error, make_loader, pack_granule
from opwatch.collectors.block.diskstats import StatReader, is_idle
from opwatch.host.device import BlockDevice, LiveAttribute
from opwatch.trace.stat import StatSample
from opwatch.trim.audit.flow import DiscardLoss, Flow, Stage, Trace, decode_flows, decode_origins
from opwatch.trim.audit.programs import AUDIT_OPTIONS, CLAIM_PROGRAMS, ProgramOptions, find_absent

if TYPE_CHECKING:
    from opwatch._native import Discards


# Poll interval for the counters while waiting for them to settle.
POLL_S = 0.05
# Device mapper does not report its discards in flight. Wait for missing completions while anything moves, and
# this much longer: a pool with slow metadata can pause for seconds.
_STILL_S = 10.0


class _Diskseq:
    """A disk's sequence number, which no other disk has until the next boot (since Linux 5.15)."""

    def __init__(self, disk: BlockDevice) -> None:
        self._file = LiveAttribute(disk.sysfs / "diskseq")
        self.first = self._file.read_text()

    def is_unchanged(self) -> bool:
        """Return False if the disk is gone or was replaced by another with the same name."""
        return self._file.read_text() == self.first

    def close(self) -> None:
        self._file.close()


class DiscardTracer(Closable):
    """Follows discards from entry to completion.

    Counts these disks only, and not another disk that gets the name and number of a disk that disappeared
    (except on kernels without disk sequence numbers). Without disks, counts all.

    `granules` are (bytes, offset) per disk. `programs` come from loader() and determine the attached hooks.
    `chain` makes the block tracer call our issue and completion programs.
    """

    def __init__(
        self,
        disks: Sequence[BlockDevice],
        granules: Mapping[str, tuple[int, int]] | None = None,
        following: ProgramOptions = AUDIT_OPTIONS,
        *,
        stalls: bool = False,
        programs: Discards | None = None,
        chain: Callable[[int, int], None] | None = None,
    ) -> None:
        packed = b"".join(pack_granule(name, *granule) for name, granule in (granules or {}).items())
        self._native = programs or make_loader(following, stalls=stalls)()
        self._letting_go: threading.Thread | None = None
        self._chain = chain
        # Imported late, because decoding works without the extension.
        from opwatch._native import ProbeError

        try:
            if chain:
                chain(*self._native.get_chained())
            self._native.attach(packed)
        except ProbeError as error:
            self._native.close()
            raise explain_load_error(error) from error
        self._disks = {disk.name: disk for disk in disks}
        self._diskseqs = {disk.name: _Diskseq(disk) for disk in disks}
        first = [diskseq.first for diskseq in self._diskseqs.values()]
        # None: all flows count.
        self._counted = frozenset(map(int, filter(None, first))) if first and None not in first else None
        self._stats = {disk.name: StatReader(disk) for disk in disks}
        self._before = self._read_stats()

    def follow_process(self, pid: int) -> None:
        """Count the discards of a process in this PID namespace as ours."""
        self._native.follow(pid)

    def list_missing(self) -> frozenset[str]:
        """Return the programs that an audit misses."""
        return find_absent(self._native.attached())

    def read_trace(self) -> Trace:
        """Return all counts so far."""
        return Trace(
            flows=tuple(self._read_flows()),
            origins=tuple(decode_origins(self._native.origins(), self._counted)),
            absent=self.list_missing(),
            loss=DiscardLoss(*self._native.loss()),
            misses=sum(program[4] for program in self._native.programs()),
            stats=self._measure_growth(),
            claims_seen=any(name in CLAIM_PROGRAMS and not error for name, error in self._native.attached()),
        )

    def wait_quiet(self, quiet_s: float, patience_s: float, stop: Callable[[], bool] = bool) -> bool:
        """Wait until the counts are stable for a while and nothing is in flight.

        Returns False after the timeout, or when `stop` returns True.
        """
        end = time.monotonic() + patience_s
        last, since = self._select_own_flows(), time.monotonic()
        while not self._is_settled(last, time.monotonic() - since, quiet_s):
            if time.monotonic() > end or stop():
                return False
            time.sleep(POLL_S)
            now = self._select_own_flows()
            if now != last:
                last, since = now, time.monotonic()
        return not _has_incomplete(last)

    def _is_settled(self, flows: Sequence[Flow], still_s: float, quiet_s: float) -> bool:
        if still_s < quiet_s or self._has_in_flight(flows):
            return False
        return still_s >= _STILL_S or not _has_incomplete(flows)

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) of each attached program."""
        return self._native.programs()

    def start_closing(self) -> None:
        """Start closing in a thread. No reads are possible afterwards.

        Detaching from functions may take the kernel as long as judging the result.
        """
        if not self._letting_go:
            self._letting_go = threading.Thread(target=self._close_programs)
            self._letting_go.start()

    def close(self) -> None:
        if self._letting_go:
            self._letting_go.join()
        else:
            self._close_programs()

    def _close_programs(self) -> None:
        if self._chain:
            self._chain(-1, -1)
            self._chain = None
        self._native.close()
        for stat in self._stats.values():
            stat.close()
        for diskseq in self._diskseqs.values():
            diskseq.close()

    def _read_flows(self) -> list[Flow]:
        return decode_flows(self._native.flows(), self._counted)

    def _select_own_flows(self) -> list[Flow]:
        """Return the flows of the watched disks only. Other disks may never become quiet."""
        return [flow for flow in self._read_flows() if flow.disk in self._stats]

    def _has_in_flight(self, flows: Sequence[Flow]) -> bool:
        """Return whether issued requests on the watched disks are incomplete, by our own count."""
        issued = dict.fromkeys(self._stats, 0)
        for flow in flows:
            if flow.stage in (Stage.ISSUED, Stage.REQUEUED, Stage.DONE):
                issued[flow.disk] += flow.amount.bytes * (1 if flow.stage is Stage.ISSUED else -1)
        # A missed completion would never arrive, so the kernel's in-flight count decides where it exists.
        return any(left > 0 and not is_idle(self._disks[name]) for name, left in issued.items())

    def _read_stats(self) -> dict[str, StatSample | None]:
        return {name: reader.read_stats() for name, reader in self._stats.items()}

    def _measure_growth(self) -> dict[str, tuple[int, int]]:
        """Return the kernel's discard counts since the start, for disks with such counts.

        The counts of a disk that disappeared are left out, because they may include another disk's.
        """
        grown = {}
        for name, now in self._read_stats().items():
            before = self._before[name]
            # Checked after the reading: until then the counts are the disk's own.
            is_same = self._diskseqs[name].is_unchanged()
            if before and now and is_same and "discard" in now.requests:
                grown[name] = (
                    now.requests["discard"] - before.requests.get("discard", 0),
                    now.bytes["discard"] - before.bytes.get("discard", 0),
                )
        return grown


def _has_incomplete(flows: Sequence[Flow]) -> bool:
    """Return whether a bio-based device mapper device received more than it completed."""
    by_request = {flow.disk for flow in flows if flow.stage is Stage.ISSUED}
    sent: Counter[str] = Counter()
    for flow in flows:
        if flow.disk.startswith("dm-") and flow.disk not in by_request:
            sent[flow.disk] += flow.amount.bytes * _ENDS.get(flow.stage, 0)
    return any(left > 0 for left in sent.values())


_ENDS = {Stage.BIO: 1, Stage.BIO_DONE: -1}
