"""The newest counters of drives: values, steps, moments, and reasons."""

from __future__ import annotations

from dataclasses import replace

from opwatch.counters.decode.ocp import CLOUD_GUID
from opwatch.counters.looks.sample import (
    CommandKind,
    DriveAnswer,
    FirmwareSample,
    NvmeCommand,
    Refusal,
    RefusalKind,
)
from opwatch.counters.reading import DriveFacts
from opwatch.samples.drive_status import DriveStatuses
from opwatch.samples.entries import CountersRead
from tests.unit.support.runs import GeneratedRun, S

_IDENTIFY = NvmeCommand(CommandKind.IDENTIFY, 1)


def encode_controller() -> bytes:
    raw = bytearray(4096)
    raw[4:24], raw[24:64], raw[64:72] = b"S1".ljust(20), b"ACME".ljust(40), b"FW7".ljust(8)
    raw[280:296] = (10**12).to_bytes(16, "little")
    return bytes(raw)


def make_sample(at_s: int, units: int, nand: int | None) -> FirmwareSample:
    smart, cloud = bytearray(512), bytearray(512)
    smart[1:3], smart[3], smart[4], smart[5] = (310).to_bytes(2, "little"), 98, 5, 17
    smart[48:64], smart[128:144] = units.to_bytes(16, "little"), (9000).to_bytes(16, "little")
    cloud[0:16], cloud[494], cloud[496:512] = (nand or 0).to_bytes(16, "little"), 3, CLOUD_GUID
    missing = Refusal(RefusalKind.UNSUPPORTED, "no such page")
    answers = (
        DriveAnswer(NvmeCommand(CommandKind.LOG, 2), bytes(smart)),
        DriveAnswer(NvmeCommand(CommandKind.LOG, 0xC0), missing if nand is None else bytes(cloud)),
        DriveAnswer(_IDENTIFY, encode_controller()),
    )
    facts = DriveFacts(protocol="nvme", model="ACME", serial="S1")
    return FirmwareSample(
        "nvme0", facts, at_s * S, at_s * S + 1, None, None, counted_on=("nvme0n1 259:0",), answers=answers
    )


def follow(*samples: FirmwareSample) -> DriveStatuses:
    drives = DriveStatuses()
    drives.process_entry(replace(GeneratedRun().add_disk(0, "nvme0n1"), drive="nvme0"))
    for sample in samples:
        drives.process_entry(CountersRead(sample))
    return drives


def test_counters_are_absolute_with_their_steps() -> None:
    status = follow(make_sample(10, units=2000, nand=3 * 10**9)).find_status("nvme0n1")
    assert (status.host.value, status.host.quantum) == (2000 * 512_000, 512_000)
    assert (status.media.value, status.media.quantum) == (3 * 10**9, 1)
    assert (status.facts.serial, status.facts.firmware, status.facts.capacity_bytes) == ("S1", "FW7", 10**12)
    assert (status.used_percent, status.spare_percent, status.spare_limit_percent) == (17, 98, 5)
    assert status.power_on_hours == 9000


def test_moment_of_a_value_is_after_the_last_poll_with_another_value() -> None:
    first, same, later = (
        make_sample(10, 2000, 10**9),
        make_sample(20, 2000, 10**9),
        make_sample(30, 2001, 10**9),
    )
    status = follow(first).find_status("nvme0n1")
    assert (status.host.since_ns, status.host.read_ns) == (None, 10 * S + 1)
    status = follow(first, same).find_status("nvme0n1")
    assert (status.host.since_ns, status.host.read_ns) == (None, 20 * S + 1)
    status = follow(first, same, later, replace(later, begin_ns=40 * S, end_ns=40 * S + 1)).find_status(
        "nvme0n1"
    )
    assert (status.host.since_ns, status.host.read_ns) == (20 * S + 1, 40 * S + 1)
    assert (status.media.since_ns, status.media.read_ns) == (None, 40 * S + 1)


def test_other_drive_under_the_same_name_starts_over() -> None:
    other = replace(make_sample(20, 2001, 10**9), counted_on=("nvme0n1 259:7",))
    status = follow(make_sample(10, 2000, 10**9), other).find_status("nvme0n1")
    assert status.host.since_ns is None


def test_refused_reading_has_a_reason_and_keeps_the_identity() -> None:
    gone = replace(make_sample(20, 0, 0), answers=(), refused=Refusal(RefusalKind.OTHER, "timed out"))
    status = follow(make_sample(10, 2000, 10**9), gone).find_status("nvme0n1")
    assert status.host.value is status.media.value is status.used_percent is None
    assert "timed out" in (status.media.reason or "")
    assert status.facts.firmware == "FW7"


def test_drive_without_a_nand_counter_has_its_host_counter() -> None:
    status = follow(make_sample(10, 2000, None)).find_status("nvme0n1")
    assert status.host.value == 2000 * 512_000
    assert status.media.value is None
    assert status.media.reason


def test_value_beyond_a_column_is_left_out() -> None:
    status = follow(make_sample(10, 2000, 1 << 100)).find_status("nvme0n1")
    assert status.media.value is None
    assert status.media.reason


def test_device_without_a_poll_has_reasons() -> None:
    status = DriveStatuses([("sda", DriveFacts(model="B"))]).find_status("sda")
    assert status.facts.model == "B"
    assert status.host.value is status.media.value is None
    assert status.host.reason and status.media.reason
