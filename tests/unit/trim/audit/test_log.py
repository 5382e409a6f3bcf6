"""Kernel log messages about the devices of a trim, and no others."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.collectors.audit.kernel_log import LogTail
from opwatch.sinks.trim_audit import build_audit_document, format_audit
from opwatch.trim.audit.flow import Stage
from opwatch.trim.audit.kernel_log import KernelLog, find_messages, parse_records
from opwatch.trim.audit.ledger import build_audit
from tests.unit.support.trim_evidence import (
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_stack,
    with_facts,
)

MIB = 1 << 20
LOG = (Path(__file__).parents[3] / "fixtures" / "good" / "trim" / "kmsg.txt").read_text()


def test_sample_records_keep_their_dictionaries() -> None:
    messages = list(parse_records(LOG))
    assert len(messages) == 9
    assert messages[0][0].startswith("sd 2:0:0:0")
    assert "DEVICE=+scsi:2:0:0:0" in messages[0][1]


@pytest.mark.parametrize(
    ("names", "devs", "numbers"),
    [
        (["sda"], [], [0, 1]),
        (["sda"], ["8:0"], [0, 1, 3]),
        (["sda", "sda1"], [], [0, 1, 4]),
        (["ata3"], [], [5]),
        (["253:2"], [], [7]),
        (["loop0"], ["7:0"], []),
        ([], [], []),
    ],
)
def test_discard_names_are_text(names: list[str], devs: list[str], numbers: list[int]) -> None:
    messages = list(parse_records(LOG))
    assert list(find_messages(messages, names, devs)) == [messages[number][0] for number in numbers]


@pytest.mark.parametrize(
    "text", ["", " SUBSYSTEM=block\n DEVICE=b8:0\n", "no record\n", "\n\n", "6,1,1,-;\n"]
)
def test_text_without_a_message_is_ignored(text: str) -> None:
    assert list(find_messages(parse_records(text), ["sda"], ["8:0"])) == []


def test_log_starts_at_the_trim(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,1,1,-;loop77: before\n")
    tail = LogTail(make_stack(make_layer("loop77", "7:77")), path)
    with path.open("a") as file:
        file.write("6,2,2,-;I/O error, dev loop77, sector 8\n6,3,3,-;loop7: another\n")
    assert tail.read_log() == KernelLog(("I/O error, dev loop77, sector 8",))


def test_unreadable_log_is_reported(tmp_path: Path) -> None:
    log = LogTail(make_stack(make_layer("loop77", "7:77")), tmp_path / "none").read_log()
    assert log.lines == ()
    assert log.unknown
    assert os.strerror(errno.ENOENT) in log.unknown


def test_message_is_printed_with_its_reason() -> None:
    """Messages follow the failed device's reason; messages without a reason come last, and none appears
    twice."""
    before = make_stack(make_layer("sda", "8:0", provisioning_mode="unmap"))
    after = with_facts(before, "sda", provisioning_mode="disabled")
    failed = [make_flow(stage, "8:0", MIB, disk="sda") for stage in (Stage.BIO, Stage.ISSUED)]
    failed.append(make_flow(Stage.DONE, "8:0", MIB, disk="sda", status=5))
    base = make_evidence(before, [make_extent_flow("8:0", MIB), *failed], MIB, after=after)
    said = KernelLog(("critical target error, dev sda, sector 2048", "sd 2:0:0:0: reset"), "some were lost")
    assert said.unknown
    result = build_audit(replace(base, log=said), "/m")
    text = list(format_audit(result))
    [at] = [index for index, line in enumerate(text) if "critical target error" in line]
    assert text[at].startswith("      kernel: ")
    assert any("do: " in line for line in text[at - 6 : at])
    [end] = [index for index, line in enumerate(text) if "reset" in line]
    assert end > at
    assert any(said.unknown in line for line in text)
    assert build_audit_document(result)["kernel_log"] == list(said.lines)
    assert build_audit_document(result)["kernel_log_unknown"] == said.unknown
