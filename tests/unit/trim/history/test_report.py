"""Text and JSON output of a history."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.sinks.trim_history import (
    HistoryState,
    build_history_document,
    format_history,
    write_state,
)
from opwatch.trim.history.saved import Checkpoint
from opwatch.trim.layers.remap import Landing
from opwatch.trim.space.extents import Extents
from opwatch.trim.stale.remembered import DeviceFreeSpace, TrustedHistory
from opwatch.trim.stale.report import HistoryReport
from opwatch.trim.stale.stale import Bounds

CHECKPOINT = Checkpoint(1, 2 * 10**18, "boot", 3, 4, 5, 6, 0, 0, 10**18)
FREE = Extents.from_pairs([(0, 1 << 20), (2 << 20, 5 << 20)])


def make_report(stale_bytes: int, unknown: int, remembered: TrustedHistory | None) -> HistoryReport:
    part = DeviceFreeSpace(Landing("sda", FREE), 1 << 30, 4096, 0, stale_bytes, unknown, remembered)
    stale = Bounds(None if unknown else stale_bytes, stale_bytes, stale_bytes + unknown)
    return HistoryReport("/mnt", "ext4", 0.5, (part,), stale, None, "nobody knows", None, ("a note",))


def make_history(*doubts: str) -> TrustedHistory:
    return TrustedHistory(Path("/var/lib/x"), CHECKPOINT, Extents(), Extents(), doubts, ())


def test_exact_figure_is_labelled_exact() -> None:
    shown = make_report(12345, 0, make_history())
    text = "\n".join(format_history(shown))
    assert "12.3 kB, 0.29 % " in text and "exact: 12345 bytes" in text
    assert "unknown  " not in text.replace("OP, WAF      unknown", "")
    document = build_history_document(shown)
    assert (document["exact"], document["unknown_bytes"]) == (True, 0)
    assert document["stale_bytes"] == {"value": 12345, "low": 12345, "high": 12345}


def test_unknown_sectors_make_bounds() -> None:
    doubt = "the disk was written to since the recording"
    shown = make_report(4096, 1 << 20, make_history(doubt))
    lines = format_history(shown)
    text = "\n".join(lines)
    assert "stale        4.10 kB to 1.05 MB" in text
    assert "unknown      1.05 MB, 25.00 % " in text
    assert "exact" not in text
    assert all(len(line) <= 80 for line in lines)
    document = build_history_document(shown)
    assert (document["exact"], document["stale_bytes"]["value"]) == (False, None)
    assert document["drives"][0]["doubts"] == [doubt]


def test_disk_without_a_history_has_no_stale_figure() -> None:
    shown = make_report(0, FREE.total_bytes, None)
    assert any(re.match(r"disk +sda: no ", line) for line in format_history(shown))
    [drive] = build_history_document(shown)["drives"]
    assert len(drive["doubts"]) == 1
    assert (drive["stale_bytes"], drive["history"], drive["unknown_bytes"]) == (None, None, FREE.total_bytes)


@pytest.mark.parametrize(
    ("slack", "words"), [(0, "to the sector"), (8, "writes 4096 bytes"), (None, "writes unknown")]
)
def test_state_of_a_recording_includes_its_proof(slack: int | None, words: str) -> None:
    look = replace(CHECKPOINT, written_slack=slack, forgotten={"a reason": 3, "another": 1})
    recorded = HistoryState(
        "sda", "/x", 1.5, "a new history", 1 << 30, 4096, 8192, (1 << 30) - 12288, 3, look, 2
    )
    out = io.StringIO()
    write_state(recorded, out, as_json=False)
    assert words in " ".join(out.getvalue().split())
    assert "3 times: a reason" in out.getvalue()
    assert "once: another" in out.getvalue()
    # The forgotten part is printed first, and the proof covers the time afterwards.
    if slack == 0:
        before, proof = out.getvalue().split("\nproof ")
        assert "once: another" in before and "loss" in proof
    assert all(len(line) <= 80 for line in out.getvalue().splitlines())
    out = io.StringIO()
    write_state(recorded, out, as_json=True)
    document = json.loads(out.getvalue())
    assert document["complete"] is False
    assert document["slack_bytes"]["write"] == (None if slack is None else slack * 512)
    assert document["blind"] is None
    blind = io.StringIO()
    write_state(replace(recorded, blind="no programs there"), blind, as_json=False)
    assert "note         no programs there" in blind.getvalue()
    assert (document["written_bytes"], document["forgotten"]) == (4096, {"a reason": 3, "another": 1})
