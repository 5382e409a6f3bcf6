"""Written bytes by process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.errors import BadInput
from opwatch.sinks.writes import build_writes_document, format_writes
from opwatch.writes.application import ApplicationWrites
from opwatch.writes.classes import WriteClass
from opwatch.writes.groups import TABLE_FULL
from opwatch.writes.processes import PROCESS, ProcessWrites, compute_process_writes, decode_processes
from opwatch.writes.reading import ProcessBytes, WriteProcess, WriteStack
from opwatch.writes.series import WritesOutcome
from opwatch.writes.waterfall import compute_waterfall

from .readings import make_reading

DB, OLD_LOG, LOG = WriteProcess(1, 40), WriteProcess(2, 41), WriteProcess(3, 41)
BEGIN = replace(
    make_reading({WriteClass.DIRECT: 10}, {}, application=ApplicationWrites(100, 0, 0)),
    buffered_processes={DB: ProcessBytes(100, "db")},
    direct_processes={DB: ProcessBytes(10, "db"), OLD_LOG: ProcessBytes(0, "old")},
)
END = replace(
    make_reading(
        {WriteClass.DIRECT: 60, WriteClass.DATA: 500, WriteClass.JOURNAL: 20},
        {},
        application=ApplicationWrites(620, 0, 0),
    ),
    buffered_processes={DB: ProcessBytes(600, "db"), LOG: ProcessBytes(15, "log")},
    direct_processes={
        DB: ProcessBytes(30, "db"),
        LOG: ProcessBytes(30, "log"),
        OLD_LOG: ProcessBytes(0, "old"),
    },
)
EXPECTED = [
    ProcessWrites("db", 40, 500, 20),
    ProcessWrites("log", 41, 15, 30),
    ProcessWrites(TABLE_FULL, None, 5, 0),
]


def test_processes_and_the_rest_add_up_to_the_application_and_the_classes() -> None:
    table = compute_process_writes(BEGIN, END)
    assert table.processes == EXPECTED
    assert table.shared_bytes == 500 + 20
    assert sum(one.direct_bytes for one in table.processes) + table.shared_bytes == 570


def test_bytes_to_the_page_cache_are_unknown_without_the_application() -> None:
    table = compute_process_writes(replace(BEGIN, application=None), replace(END, application=None))
    assert ProcessWrites("log", 41, None, 30) in table.processes


def test_counters_are_decoded_by_start_and_number() -> None:
    raw = PROCESS.pack(7, 40, 0, 4096, b"db\0") + PROCESS.pack(8, 40, 0, 1, b"\xff")
    assert decode_processes(raw) == {
        WriteProcess(7, 40): ProcessBytes(4096, "db"),
        WriteProcess(8, 40): ProcessBytes(1, "\N{REPLACEMENT CHARACTER}"),
    }
    with pytest.raises(BadInput):
        decode_processes(raw[:-1])


def test_processes_are_shown_with_what_the_kernel_wrote_for_all() -> None:
    waterfall = compute_waterfall(WriteStack("/srv", "ext4", ("sda",), ()), BEGIN, END)
    outcome = WritesOutcome(waterfall, processes=compute_process_writes(BEGIN, END))
    document = build_writes_document(outcome)
    assert document["processes"][0] == {"name": "db", "pid": 40, "buffered_bytes": 500, "direct_bytes": 20}
    assert document["shared_bytes"] == 520
    lines = list(format_writes(outcome))
    assert any(line.split()[:2] == ["log", "41"] for line in lines)
    assert any("520" in line for line in lines)
