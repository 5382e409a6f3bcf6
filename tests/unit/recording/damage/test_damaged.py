"""Recordings with damaged bytes: intact values are shown, and no wrong value."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import TABLES, compute_row_check, has_check
from opwatch.samples.entries import DiskAdded, EventReported, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.entry_parts import get_samples
from opwatch.samples.sample import DiskSample
from tests.unit.support.recordings import format_run, generate_short_run, record_run
from tests.unit.support.runs import generate_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "run.opw"
    record_run(path, generate_run(190))
    return path


@pytest.fixture
def path(whole: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "run.opw"
    copy.write_bytes(whole.read_bytes())
    return copy


def read_entries(path: Path) -> list[RunEntry]:
    with closing(RecordedRun(path)) as run:
        return list(run.iter_entries())


Known = dict[tuple[int, int], DiskSample]


def map_samples(entries: list[RunEntry]) -> Known:
    """Return every sample by disk and time."""
    return {
        (place, sample.reading.sample.end_ns): sample
        for entry in entries
        for place, sample in get_samples(entry).items()
    }


def is_subset(some: Known, every: Known) -> bool:
    """Return True if no sample differs from the recorded samples."""
    return all(every.get(key) == sample for key, sample in some.items())


def list_gaps(entries: list[RunEntry]) -> list[str]:
    return [
        entry.event.text for entry in entries if isinstance(entry, EventReported) and not entry.event.device
    ]


def execute_change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount == 1


def test_every_row_has_its_checksum(whole: Path) -> None:
    with closing(sqlite3.connect(whole)) as connection:
        for table in filter(has_check, TABLES):
            for row in connection.execute(f"SELECT * FROM {table}"):
                assert row[-1] == compute_row_check(table, row[:-1])


def test_checksum_matches_the_documented_algorithm() -> None:
    """Computed without zlib."""
    crc = 0xFFFFFFFF
    for byte in b"clocks" + b"i1:7" + b"t1:7" + b"b2:\x00\xff" + b"n4:None":
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    assert compute_row_check("clocks", (7, "7", b"\x00\xff", None)) == crc ^ 0xFFFFFFFF


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE frames SET body = substr(body, 1, 40) || x'55' || substr(body, 42) WHERE rowid = 3",
        "DELETE FROM frames WHERE rowid = 3",
        "UPDATE frames SET samples = samples - 1 WHERE rowid = 3",
        "UPDATE blocks SET anchors = substr(anchors, 1, 9) || x'55' || substr(anchors, 11) WHERE block = 2",
        "UPDATE blocks SET end_ns = end_ns + 1 WHERE block = 2",
    ],
)
def test_damaged_minute_is_left_out_and_reported(path: Path, whole: Path, statement: str) -> None:
    good = read_entries(whole)
    execute_change(path, statement)
    entries = read_entries(path)
    *others, gap = list_gaps(entries)
    assert "is left out" in gap and str(path) in gap
    assert len(others) == statement.startswith("UPDATE blocks")
    assert is_subset(map_samples(entries), map_samples(good))
    assert len(map_samples(good)) > len(map_samples(entries)) > 0.5 * len(map_samples(good))
    # The run can be shown to the end.
    assert isinstance(entries[-1], RunEnded)
    assert '"type":"summary"' in format_run(entries).replace(" ", "")
    assert format_run(entries, plain=True)


def test_first_minute_that_is_damaged_loses_only_itself(path: Path, whole: Path) -> None:
    execute_change(path, "UPDATE frames SET fact = fact + 1 WHERE rowid = 1")
    entries, good = read_entries(path), read_entries(whole)
    assert len(list_gaps(entries)) == 1
    assert sum(isinstance(entry, DiskAdded) for entry in entries) >= 2
    assert is_subset(map_samples(entries), map_samples(good))
    assert len(map_samples(good)) > len(map_samples(entries)) > 0.5 * len(map_samples(good))
    assert format_run(entries)


def test_damaged_minute_is_left_out_when_disks_come_and_go(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    record_run(path, generate_short_run())
    execute_change(
        path, "UPDATE frames SET samples = samples + 1 WHERE rowid = (SELECT max(rowid) FROM frames)"
    )
    entries = read_entries(path)
    assert len(list_gaps(entries)) == 1
    assert any(isinstance(entry, DiskAdded | IntervalEnded) for entry in entries)


def test_interval_after_the_gap_covers_the_gap(path: Path, whole: Path) -> None:
    execute_change(path, "UPDATE blocks SET crc = crc + 1 WHERE block = 2")
    of_both = []
    for one in (path, whole):
        lines = [json.loads(line) for line in format_run(read_entries(one)).splitlines()]
        of_both.append([line["ops"] for line in lines if line["type"] == "summary"])
    assert of_both[0] == of_both[1]
    times = sorted(at_ns for _, at_ns in map_samples(read_entries(path)))
    assert 55e9 < max(later - earlier for earlier, later in pairwise(times)) < 65e9


@pytest.mark.parametrize("seed", range(3))
def test_changed_byte_never_changes_a_value_silently(path: Path, whole: Path, seed: int) -> None:
    chance, good, raw = random.Random(seed), map_samples(read_entries(whole)), bytearray(whole.read_bytes())
    shown_whole = refused = 0
    for _ in range(8):
        at = chance.randrange(len(raw))
        changed = bytearray(raw)
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        try:
            entries = read_entries(path)
        except BadInput as error:
            refused += 1
            assert str(path) in str(error)
            continue
        assert is_subset(map_samples(entries), good)
        if len(map_samples(entries)) < len(good):
            assert list_gaps(entries)
        shown_whole += 1
    assert shown_whole > refused
