"""A disk with counters set by the test, sampled once per second, and recordings of the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.recording.schema import PHASE_BEGAN
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import DiskAdded, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.abi import LATENCY, OPS, SCALARS, SIZE, SLOTS, decode_sample
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading

S = 10**9
_BEGAN_NS = 5_000 * S
_WALL_NS = 1_760_000_000 * S
_WIDTH = len(SCALARS) + sum(SLOTS)
# The duration of a reading.
_READ_NS = 100_000
BLOCK = 4096

# Requests of one second: for each operation, the count at each latency in ns.
Second = Mapping[str, Mapping[int, int]]


class CountedDisk:
    """The disk's counters since the start."""

    def __init__(self, name: str = "nvme0n1") -> None:
        self.disk = WatchedDisk(name, name, "requests by hand", flush_queues=8)
        self._words = memoryview(bytearray(8 * (2 + len(OPS) * _WIDTH))).cast("Q")

    def add_second(self, second: Second) -> None:
        for op, latencies in second.items():
            begin = 2 + OPS.index(op) * _WIDTH
            done = sum(latencies.values())
            for ns, count in latencies.items():
                self._words[begin + len(SCALARS) + LATENCY.find_slot(ns)] += count
            self._words[begin + len(SCALARS) + 2 * LATENCY.slots + SIZE.find_slot(BLOCK // 512)] += done
            sum_ns = sum(ns * count for ns, count in latencies.items())
            grown = {"completed": done, "issued": done, "ends": done, "bytes": done * BLOCK}
            grown |= dict.fromkeys(("sum_ns", "in_flight_ns"), sum_ns)
            for name, by in grown.items():
                self._words[begin + SCALARS.index(name)] += by
            most = begin + SCALARS.index("max_ns")
            self._words[most] = max(self._words[most], max(latencies, default=0))

    def make_sample(self, second: int, cpu: CpuTimes | None = None) -> DiskSample:
        end_ns = _BEGAN_NS + second * S
        self._words[0], self._words[1] = end_ns - _READ_NS, end_ns
        counters = decode_sample(bytes(self._words))
        ended = {group: counters.ops[group].ends for group in ("read", "write", "flush", "discard")}
        sizes = {group: counters.ops[group].bytes for group in ("read", "write", "discard")}
        before = StatSample(end_ns - 2 * _READ_NS, end_ns - 2 * _READ_NS + 9, ended, sizes, 0)
        after = StatSample(end_ns + 9, end_ns + 99, ended, sizes, 0)
        anchor = Anchor(end_ns + 200, _WALL_NS + end_ns + 200, 40)
        return DiskSample(self.disk, Reading(counters, before, after), 0, anchor, cpu)


def generate_entries(
    seconds: Iterable[Second], name: str = "nvme0n1", cpus: Iterable[CpuTimes] = ()
) -> Iterator[RunEntry]:
    """Yield a run of one disk; `cpus` are the CPU times at the start and after each second, if any."""
    disk, number, times = CountedDisk(name), 0, iter(cpus)
    cpu = next(times, None)
    yield DiskAdded(0, disk.make_sample(0, cpu))
    for number, second in enumerate(seconds, 1):
        disk.add_second(second)
        cpu = next(times, None)
        yield IntervalEnded({0: disk.make_sample(number, cpu)})
    yield RunEnded({0: disk.make_sample(number, cpu)})


def write_recording(path: Path, run: Iterable[RunEntry], phases: Iterable[str] = ()) -> None:
    """Record a run with the real writer, and with phases that begin with the run and never end."""
    database = NewDatabase(path)
    writer = RecordingWriter(database, {"tool": "opwatch", "interval_ns": S})
    writer.begin_transaction()
    for entry in run:
        writer.add_entry(entry)
    for name in phases:
        writer.add_event(PHASE_BEGAN, name, S)
    writer.commit()
    writer.end_recording("done", 0, 0)
    database.close()
