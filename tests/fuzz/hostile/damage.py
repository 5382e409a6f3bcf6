"""Damaged recordings compared with the original: no value may change without a message.

python -m tests.fuzz.hostile.damage [INPUTS [SEED]]
"""

from __future__ import annotations

import collections
import gzip
import random
import sys
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import PAGE_BYTES
from opwatch.samples.entries import CountersRead, EventReported, RunEntry, SlowRequestsSeen
from opwatch.samples.entry_parts import get_samples
from tests.fuzz.recordings import GOOD
from tests.unit.support.recordings import record_run
from tests.unit.support.runs import GeneratedRun

_MINUTES = 4


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Values read from a recording by key, and the reported gaps. `error` is the reason for an early end."""

    values: dict[Hashable, object]
    gaps: list[str]
    error: str | None = None


def read_recording(path: Path) -> ReadResult:
    """Read a complete recording."""
    values: dict[Hashable, object] = {}
    gaps: list[str] = []
    with closing(RecordedRun(path)) as run:
        for number, event in enumerate(run.events):
            values["event", number] = event
        if run.missing_bytes:
            gaps.append(f"{run.missing_bytes} bytes are missing")
        try:
            for entry in run.iter_entries():
                if isinstance(entry, EventReported) and entry.event.kind == "damaged":
                    gaps.append(entry.event.text)
                values.update(_iterate_values(entry))
        except OpwatchError as error:
            if not any(key[0] != "event" for key in values if isinstance(key, tuple)):
                raise
            return ReadResult(values, gaps, str(error))
    return ReadResult(values, gaps)


def _iterate_values(entry: RunEntry) -> Iterator[tuple[Hashable, object]]:
    for place, sample in get_samples(entry).items():
        yield ("sample", place, sample.reading.sample.end_ns), sample
    if isinstance(entry, CountersRead):
        yield ("look", entry.sample.disk, entry.sample.begin_ns), entry
    if isinstance(entry, SlowRequestsSeen):
        for request in entry.requests:
            yield ("slow", request.place, request.end_ns, request.latency_ns), request


def _make_long_run() -> Iterator[RunEntry]:
    """Yield the entries of one disk over several minutes, with polls of its drive."""
    run = GeneratedRun(7)
    yield run.add_disk(0, "nvme0n1")
    for second in range(60 * _MINUTES):
        yield run.make_interval_entry([0])
        if second % 30 == 0:
            yield run.make_poll_entry("nvme0n1", second)
    yield run.make_end_entry([0])


class Damage:
    """Damages a recording: bits, bytes, pages, or the end."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def damage_copy(self, raw: bytes) -> tuple[str, bytes]:
        """Return the kind of damage and the damaged file."""
        chance, changed = self._chance, bytearray(raw)
        kind = chance.choice(("a bit", "bytes", "a page of zeros", "another page", "its end is missing"))
        page = chance.randrange(len(raw) // PAGE_BYTES) * PAGE_BYTES
        if kind == "a bit":
            changed[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        elif kind == "bytes":
            for _ in range(chance.randrange(1, 9)):
                changed[chance.randrange(len(raw))] = chance.randrange(256)
        elif kind == "a page of zeros":
            changed[page : page + PAGE_BYTES] = bytes(PAGE_BYTES)
        elif kind == "another page":
            other = chance.randrange(len(raw) // PAGE_BYTES) * PAGE_BYTES
            changed[page : page + PAGE_BYTES] = raw[other : other + PAGE_BYTES]
        else:
            del changed[chance.randrange(len(raw)) :]
        return kind, bytes(changed)


def run(count: int, seed: int, folder: Path) -> dict[str, int]:
    """Damage this many recordings and return the number by result.

    Raises AssertionError if values change, or are missing without a message.
    """
    damage, tally = Damage(random.Random(seed)), collections.Counter[str]()
    chance = random.Random(seed)
    long_run = folder / "long.opw"
    record_run(long_run, _make_long_run())
    wholes = [long_run]
    for name in ("1", "1-killed"):
        wholes.append(folder / f"{name}.opw")
        wholes[-1].write_bytes(gzip.decompress((GOOD / f"{name}.opw.gz").read_bytes()))
    good = {whole: read_recording(whole) for whole in wholes}
    path = folder / "it.opw"
    for number in range(1, count + 1):
        whole = long_run if chance.random() < 0.7 else chance.choice(wholes[1:])
        kind, raw = damage.damage_copy(whole.read_bytes())
        path.write_bytes(raw)
        where = f"recording {number} of seed {seed}, {whole.name}, {kind}"
        try:
            there = read_recording(path)
        except OpwatchError as error:
            assert str(path) in str(error), f"{where}: {error}"
            tally["refused"] += 1
            tally[f"refused: {kind}"] += 1
            continue
        other = [key for key, value in there.values.items() if good[whole].values.get(key) != value]
        assert not other, f"{where}: {len(other)} values differ: {other[:3]}"
        if len(there.values) == len(good[whole].values):
            tally["whole"] += 1
        elif there.error:
            tally["until an error"] += 1
        elif there.gaps:
            tally["in part"] += 1
        else:
            lost = [key for key in good[whole].values if key not in there.values]
            kinds = {key[0] for key in lost if isinstance(key, tuple)}
            assert kinds <= {"event"}, (
                f"{where}: {len(lost)} values are missing without a message: {lost[:3]}"
            )
            tally["events lost"] += 1
    return dict(tally)


def main() -> int:
    count, seed = (int(word) for word in (sys.argv[1:3] + ["1100", "0"][len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory(prefix="opwatch-damage-") as folder:
        tally = run(count, seed, Path(folder))
    print(f"{count} damaged recordings, seed {seed}, none with a different value:", tally)
    return 0


if __name__ == "__main__":
    sys.exit(main())
