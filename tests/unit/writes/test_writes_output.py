"""The table and the document of a measurement."""

from __future__ import annotations

from opwatch.sinks.writes import build_writes_document, format_writes
from opwatch.writes.application import ApplicationWrites
from opwatch.writes.classes import WriteClass
from opwatch.writes.groups import GroupWrites
from opwatch.writes.reading import WriteLayer, WriteStack
from opwatch.writes.series import WritesOutcome
from opwatch.writes.waterfall import compute_waterfall
from opwatch.writes.witnesses import FilesystemCounters

from .readings import make_reading

STACK = WriteStack("/srv", "xfs", ("sda",), (WriteLayer("sda", ""),))
BEGIN = make_reading({}, {"sda": 0}, counters=FilesystemCounters("XFS", 0, journal=0), dirty=10_000_000)
END = make_reading(
    {WriteClass.DATA: 900_000_000, WriteClass.JOURNAL: 700_000_000},
    {"sda": 1_600_000_000},
    counters=FilesystemCounters("XFS", 1_000_000_000, journal=700_000_000),
    dirty=0,
    second=60,
)
WATERFALL = compute_waterfall(STACK, BEGIN, END)


def test_lines_show_amounts_cumulative_ratios_and_remarks() -> None:
    lines = list(format_writes(WritesOutcome(WATERFALL)))
    journal = next(line for line in lines if line.startswith("xfs journal"))
    assert "700 MB" in journal
    assert "1.60" in journal
    assert "agrees to the byte" in journal
    cache = next(line for line in lines if line.startswith("page cache"))
    assert "-100 MB" in cache
    assert "± 10.0 MB" in cache


def test_a_synced_interval_has_no_error_of_dirty_memory() -> None:
    lines = format_writes(WritesOutcome(WATERFALL, synced=True))
    assert not any("±" in line for line in lines)


def test_the_document_has_every_row_with_its_ratio() -> None:
    groups = [GroupWrites("/db", 10, 0)]
    document = build_writes_document(WritesOutcome(WATERFALL, groups, ["a note"]))
    rows = {row["kind"]: row for row in document["rows"]}
    assert rows["journal"] == {
        "kind": "journal",
        "name": "xfs journal",
        "bytes": 700_000_000,
        "total_bytes": 1_600_000_000,
        "ratio": 1.6,
        "error_bytes": None,
        "reason": None,
        "witness": {"source": "XFS", "bytes": 700_000_000, "agrees": True},
    }
    assert (document["base"], document["interval_s"]) == ("application", 60)
    assert document["groups"] == [{"name": "/db", "data_bytes": 10, "shared_bytes": 0}]


def test_names_of_groups_cannot_control_the_terminal() -> None:
    lines = list(format_writes(WritesOutcome(WATERFALL, [GroupWrites("/\x1b[31m", 10, 0)])))
    assert not any("\x1b" in line for line in lines)


def test_stores_to_mapped_files_are_shown_as_a_bound() -> None:
    begin = make_reading({}, {"sda": 0}, application=ApplicationWrites(0, 0, 0))
    end = make_reading({}, {"sda": 0}, application=ApplicationWrites(2_000_000, 1_000_000, 1000), second=1)
    outcome = WritesOutcome(compute_waterfall(STACK, begin, end))
    text = " ".join(" ".join(format_writes(outcome)).split())
    assert "buffered 2.00 MB, direct 1.00 MB" in text
    assert "up to 4.10 MB more" in text
    row = build_writes_document(outcome)["rows"][0]
    assert (row["buffered_bytes"], row["mapped_pages"]) == (2_000_000, 1000)


def test_lines_fit_into_80_columns() -> None:
    names = tuple(f"nvme{number}n1" for number in range(12))
    stack = WriteStack("/srv", "btrfs", names, tuple(WriteLayer(name, "") for name in names))
    waterfall = compute_waterfall(stack, make_reading({}, {}), make_reading({}, {}))
    assert max(map(len, format_writes(WritesOutcome(waterfall)))) <= 80
    assert max(map(len, format_writes(WritesOutcome(WATERFALL)))) <= 80
