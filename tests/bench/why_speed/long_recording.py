"""Recordings of many hours and disks: two disks are recorded, the others have copies of their minutes."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from opwatch.recording.schema import build_insert, compute_row_check
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter
from opwatch.samples.entries import DiskAdded, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.sample import DiskSample
from opwatch.trace.abi import LATENCY, OPS, SCALARS, SLOTS
from tests.unit.compare.counted_disk import CountedDisk, S, Second

DISTINCT = 2
BURST_S = 4
_QUEUE_NS = 4_000


class QueuedDisk(CountedDisk):
    """A counted disk whose requests also have a queue time, as with `--queue`."""

    def add_second(self, second: Second) -> None:
        super().add_second(second)
        for op, latencies in second.items():
            begin = 2 + OPS.index(op) * (len(SCALARS) + sum(SLOTS))
            queue = begin + len(SCALARS) + LATENCY.slots
            for number, count in enumerate(latencies.values()):
                self._words[queue + LATENCY.find_slot(_QUEUE_NS + 150 * number)] += count
            done = sum(latencies.values())
            for name, by in (("queued", done), ("queue_sum_ns", done * _QUEUE_NS), ("admission_known", done)):
                self._words[begin + SCALARS.index(name)] += by


def draw_bursts(seconds: int, count: int, seed: int) -> list[int]:
    """Return the first seconds of bursts, one per part of the run."""
    chance, part = random.Random(seed), seconds // count
    return [number * part + chance.randrange(part // 2, part - 2 * BURST_S) for number in range(count)]


def _draw_second(chance: random.Random, *, is_slow: bool) -> Second:
    def draw(median_ns: int, requests: int, slots: int) -> dict[int, int]:
        counts: dict[int, int] = {}
        for slot in range(slots):
            latency = round(median_ns * (0.7 + 0.05 * slot) * chance.lognormvariate(0, 0.01))
            counts[latency] = max(round(chance.gauss(requests / slots, (requests / slots) ** 0.5)), 1)
        return counts

    second = {"read": draw(900_000 if is_slow else 90_000, 800, 16), "write": draw(25_000, 300, 8)}
    return second | ({"flush": draw(600_000, 300, 4)} if is_slow else {})


def _generate_entries(seconds: int, disks: int, slow: Sequence[set[int]], seed: int) -> Iterator[RunEntry]:
    """Yield a run whose recorded disks are slow in these seconds; of the others it has the first minute."""
    chance = random.Random(seed)
    distinct = [QueuedDisk(f"nvme{number}n1") for number in range(DISTINCT)]

    def take_sample(place: int, second: int) -> DiskSample:
        return distinct[place % DISTINCT].make_sample(second)

    def rename(sample: DiskSample, place: int) -> DiskSample:
        name = f"nvme{place}n1"
        return replace(sample, disk=replace(sample.disk, device=name, origin=name))

    for place in range(disks):
        yield DiskAdded(place, rename(take_sample(place, 0), place))
    for second in range(1, seconds + 1):
        for disk, slow_seconds in zip(distinct, slow, strict=True):
            disk.add_second(_draw_second(chance, is_slow=second in slow_seconds))
        yield IntervalEnded({place: take_sample(place, second) for place in range(DISTINCT)})
    yield RunEnded({place: rename(take_sample(place, seconds), place) for place in range(disks)})


def write_long_recording(
    path: Path, seconds: int, slow_disks: int, disks: int, bursts: list[int], seed: int
) -> None:
    """Record disks; the reads of all of them, or of some but the second, are slow in bursts of flushes."""
    slow = {burst + at for burst in bursts for at in range(BURST_S)}
    are_equal = slow_disks == disks
    database = NewDatabase(path)
    writer = RecordingWriter(database, {"tool": "bench", "interval_ns": S})
    writer.begin_transaction()
    for number, entry in enumerate(
        _generate_entries(seconds, disks, (slow, slow if are_equal else set()), seed)
    ):
        writer.add_entry(entry)
        if number % 60 == 0:
            writer.commit()
            writer.begin_transaction()
    writer.commit()
    writer.end_recording("done", 0, 0)
    database.close()
    # A disk of few slow ones is a copy of the first, which is slow, a quiet one of the second.
    _copy_minutes(
        path, {place: place % DISTINCT if are_equal else int(place > slow_disks) for place in range(disks)}
    )


def _copy_minutes(path: Path, sources: Mapping[int, int]) -> None:
    """Give every disk but the recorded ones the minutes of a recorded one, except for the first minute."""
    connection = sqlite3.connect(path)
    facts = dict(connection.execute("SELECT place, fact FROM frames WHERE block = 1"))
    connection.execute("DELETE FROM frames WHERE block > 1 AND place >= ?", (DISTINCT,))
    for place in range(DISTINCT, len(sources)):
        rows = connection.execute(
            "SELECT block, samples, body FROM frames WHERE block > 1 AND place = ?", (sources[place],)
        ).fetchall()
        copies = [(block, place, facts[place], samples, body) for block, samples, body in rows]
        counts = connection.execute("SELECT * FROM counts WHERE place = ?", (sources[place],)).fetchall()
        connection.execute("DELETE FROM counts WHERE place = ?", (place,))
        connection.executemany(
            f"INSERT INTO counts VALUES ({', '.join('?' * len(counts[0]))})",
            [(mono_ns, place, *rest) for mono_ns, _, *rest in counts],
        )
        connection.executemany(
            build_insert("frames"), [(*row, compute_row_check("frames", row)) for row in copies]
        )
    for *row, _ in connection.execute("SELECT * FROM blocks WHERE block > 1").fetchall():
        changed = (*row[:-1], len(sources))
        check = compute_row_check("blocks", changed)
        connection.execute(
            "UPDATE blocks SET frames = ?, crc = ? WHERE block = ?", (len(sources), check, row[0])
        )
    connection.commit()
    connection.close()
