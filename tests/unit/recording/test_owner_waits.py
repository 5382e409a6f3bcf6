"""Waits of owners in a recording, and in recordings of versions without or with more of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opwatch.owners.cells import OwnedCounts, OwnedWaits, OwnerGrouping, OwnerKind
from opwatch.owners.sample import OwnerRow, OwnerSample
from opwatch.recording.coding.plain import PlainDecoder, PlainEncoder
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.entries import IntervalEnded
from tests.unit.support.recordings import record_run
from tests.unit.support.runs import generate_run

WAITS = OwnedWaits(7, 700, 7, 2, 500, 7, 70)
COUNTS = OwnedCounts(5, 20480, 9000, WAITS)
SAMPLE = OwnerSample(
    OwnerGrouping.CGROUP,
    (OwnerRow(OwnerKind.CGROUP, 7, 0, "/db", {"read": COUNTS, "write": COUNTS._replace(waits=None)}),),
    has_waits=True,
)


def test_waits_are_read_as_they_were_recorded(tmp_path: Path) -> None:
    entries = [
        replace(entry, owners=dict.fromkeys(entry.owners, SAMPLE))
        if isinstance(entry, IntervalEnded)
        else entry
        for entry in generate_run(5)
    ]
    record_run(tmp_path / "run.opw", entries)
    recording = RecordedRun(tmp_path / "run.opw")
    found = [one for one in recording.iter_entries() if isinstance(one, IntervalEnded)]
    recording.close()
    assert found
    assert all(owners == SAMPLE for one in found for owners in one.owners.values())


def decode_sample(shapes: dict[str, tuple[str, ...]], plain: object) -> OwnerSample:
    decoder = PlainDecoder(shapes, lambda number: b"", lambda kind, number, where: None)
    sample: OwnerSample = decoder.decode_value(OwnerSample, plain, "here")
    return sample


def test_counts_of_an_older_version_have_no_waits() -> None:
    shapes = {
        "OwnerSample": ("by", "rows", "no_room"),
        "OwnerRow": ("kind", "number", "since_ns", "name", "counts", "group", "earlier"),
        "OwnedCounts": ("requests", "bytes", "sum_ns"),
    }
    rows = [["cgroup", 7, 0, "/db", [["read", [5, 20480, 9000]]], None, []]]
    sample = decode_sample(shapes, ["cgroup", rows, [0, 0, 0]])
    assert not sample.has_waits
    assert sample.rows[0].counts == {"read": OwnedCounts(5, 20480, 9000)}


def test_an_older_version_finds_its_fields_before_the_waits() -> None:
    """Fields are found by name; those that a version does not know are skipped."""
    encoder = PlainEncoder(lambda raw: 0, lambda value, own: None)
    plain = encoder.encode_value(SAMPLE)
    assert encoder.shapes["OwnedCounts"][:3] == ("requests", "bytes", "sum_ns")
    shapes = encoder.shapes | {"OwnerSample": ("by", "rows", "no_room", "of a later version")}
    assert decode_sample(shapes, plain) == replace(SAMPLE, has_waits=False)
