"""Record a synthetic day of four disks, one sample per second, with the real writer.

Measures bytes, memory, and the time to seek to any moment.

    python -m tests.bench.recording_bench [SECONDS]
"""

from __future__ import annotations

import random
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.reading.steps import IntervalSteps
from opwatch.recording.reading.window import close_run, merge_intervals
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import DiskAdded, IntervalEnded
from tests.bench.recording_bench.synthetic_day import DAY_S, S, SyntheticMachine, compute_rates, make_disks
from tests.bench.recording_bench.synthetic_owners import SyntheticOwners

# 6 MB of samples, plus a 4-byte checksum per row.
MAX_BYTES_PER_DAY = 6_100_000
MAX_SEEK_S = 1.0
MAX_MEMORY = 200 << 20
_SEEKS = 9


def write_day(path: Path, seconds: int, seed: int, *, owned: bool = False) -> float:
    """Record `seconds` seconds spread over the day; return the writer's CPU time in seconds.

    With `owned`, the samples include the owners of requests.
    """
    chance, watched = random.Random(seed), make_disks(seed)
    machine = SyntheticMachine(random.Random(seed + 9))
    database = NewDatabase(path)
    writer = RecordingWriter(database, {"tool": "bench", "interval_ns": 10**9})
    owners = [SyntheticOwners(disk, seed) for disk in watched] if owned else []
    writer.begin_transaction()
    for place, disk in enumerate(watched):
        writer.add_entry(
            DiskAdded(place, disk.make_sample(0), owners=owners[place].make_sample(0) if owned else None)
        )
    writer.commit()
    spent = 0.0
    for second in range(1, seconds + 1):
        # In a shorter run, each minute represents several minutes.
        hour_of_day = second % 60 + second // 60 * 60 * DAY_S // seconds
        requests = 0.0
        for disk in watched:
            asked = compute_rates(disk.name, hour_of_day, chance)
            disk.add_second(asked)
            requests += sum(asked)
        # All samples read together share an anchor and the CPU time.
        samples = {place: disk.make_sample(second) for place, disk in enumerate(watched)}
        anchor, cpu = samples[0].anchor, machine.add_second(requests)
        shared = {place: replace(one, anchor=anchor, cpu=cpu) for place, one in samples.items()}
        whose = {place: one.make_sample(second) for place, one in enumerate(owners)}
        begun = time.thread_time()
        writer.begin_transaction()
        writer.add_entry(IntervalEnded(shared, owners=whose))
        writer.commit()
        spent += time.thread_time() - begun
    writer.end_recording("done", 0, 0)
    database.close()
    return spent


def time_seek(path: Path, at_ns: int) -> float:
    """Return the seconds until the first interval after a moment is read, including opening the file."""
    begun = time.monotonic()
    recording = RecordedRun(path)
    for entry in recording.iter_entries(at_ns):
        if isinstance(entry, IntervalEnded) and entry.samples[0].reading.sample.end_ns >= at_ns:
            break
    recording.close()
    return time.monotonic() - begun


def time_hours(path: Path) -> float:
    """Return the seconds to read the whole recording in intervals of an hour."""
    begun = time.monotonic()
    recording, steps = RecordedRun(path), IntervalSteps(3600 * S, S)
    for _ in merge_intervals(close_run(recording.iter_entries(0, steps)), steps):
        pass
    recording.close()
    return time.monotonic() - begun


def read_frame_bytes(path: Path) -> dict[str, int]:
    """Return the bytes of each disk's frames."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT place, sum(length(body)) FROM frames GROUP BY place")
    names = [disk.name for disk in make_disks(0)]
    sizes = {names[place]: size for place, size in rows}
    connection.close()
    return sizes


def main() -> int:
    seconds = int(sys.argv[1]) if sys.argv[1:] else DAY_S
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "day.opw"
        spent = write_day(path, seconds, 20261122)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        size, names = path.stat().st_size, [disk.name for disk in make_disks(0)]
        a_day = size / len(names) * DAY_S / seconds
        first_ns = 5_000 * 10**9
        moments = [first_ns + seconds * 10**9 * at // (_SEEKS + 1) for at in range(1, _SEEKS + 1)]
        seeks = [time_seek(path, moment) for moment in moments]
        print(
            f"{seconds} s of {len(names)} disks: {size} bytes; {a_day:.0f} per disk and day, "
            f"bound {MAX_BYTES_PER_DAY}"
        )
        for name, bytes_ in read_frame_bytes(path).items():
            print(
                f"  {name:<8} {bytes_ / seconds:6.1f} bytes per sample, "
                f"{bytes_ * DAY_S / seconds:.0f} per day"
            )
        print(f"writing: {1e3 * spent / seconds / len(names):.2f} ms of CPU time per sample")
        print(
            f"seek to any moment: median {statistics.median(seeks):.2f} s, at most {max(seeks):.2f} s, "
            f"bound {MAX_SEEK_S:g} s"
        )
        print(f"replay in intervals of an hour: {time_hours(path):.2f} s")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        print(
            f"memory: {memory >> 20} MiB while writing, {peak >> 20} MiB with reading, "
            f"bound {MAX_MEMORY >> 20} MiB"
        )
    return int(a_day > MAX_BYTES_PER_DAY or statistics.median(seeks) > MAX_SEEK_S or peak > MAX_MEMORY)


if __name__ == "__main__":
    sys.exit(main())
