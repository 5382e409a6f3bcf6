from __future__ import annotations

import re
from dataclasses import replace

import pytest

from opwatch.compare.pairing import DiskPairs, pair_disks
from opwatch.compare.sampling import CountedInterval, CountedOp, DiskTimeline, SampledRun
from opwatch.errors import NotEnoughData, UsageError
from tests.unit.support.drive_readings import read_drive
from tests.unit.support.virtual_drive import OCP, VirtualDrive

FILES = ("a.opw", "b.opw")


def make_run(*names: str, idle: tuple[str, ...] = (), serials: dict[str, str] | None = None) -> SampledRun:
    """Return a run with these disks; the idle ones have no requests, and those with a serial number have a
    drive reading."""
    made = SampledRun()
    for name in (*names, *idle):
        course = DiskTimeline(name, drive=name)
        course.add_stretch(
            CountedInterval(1.0, {} if name in idle else {"read": CountedOp(5, 5 << 12, 500, {9: 5})})
        )
        made.disks[name] = course
        serial = (serials or {}).get(name)
        if serial:
            look = read_drive(VirtualDrive(OCP, 1), (f"{name} 1 2",), disk=name)
            made.looks[name] = [replace(look, drive=replace(look.drive, model="ACME", serial=serial))]
    return made


def list_device_pairs(pairs: DiskPairs) -> list[tuple[str, ...]]:
    return [tuple(course.device for course in row) for row in pairs.rows]


def test_single_busy_disks_are_paired_despite_their_names() -> None:
    assert list_device_pairs(
        pair_disks([make_run("sda", idle=("sdz",)), make_run("nvme0n1")], (), FILES)
    ) == [("sda", "nvme0n1")]


def test_disks_are_paired_by_name_and_unpaired_disks_are_noted() -> None:
    pairs = pair_disks([make_run("sda", "sdb", "sdc"), make_run("sdd", "sdc", "sda")], (), FILES)
    assert list_device_pairs(pairs) == [("sda", "sda"), ("sdc", "sdc")]
    assert [note.partition(": ")[0] for note in pairs.notes] == ["sdb of a.opw", "sdd of b.opw"]


def test_a_drive_is_its_serial_number() -> None:
    before = make_run("nvme0n1", "nvme1n1", serials={"nvme0n1": "S1", "nvme1n1": "S2"})
    after = make_run("nvme0n1", "nvme1n1", serials={"nvme0n1": "S2", "nvme1n1": "S1"})
    assert list_device_pairs(pair_disks([before, after], (), FILES)) == [
        ("nvme0n1", "nvme1n1"),
        ("nvme1n1", "nvme0n1"),
    ]
    other = make_run("nvme0n1", "sda", serials={"nvme0n1": "S9"})
    with pytest.raises(UsageError, match=r"--dev nvme0n1/nvme0n1$"):
        pair_disks([before, other], (), FILES)


def test_requested_devices_are_selected() -> None:
    runs = [make_run("sda", "sdb"), make_run("sda", "sdc", idle=("sdz",))]
    assert list_device_pairs(pair_disks(runs, ["sdb/sdc", "sda", "sda/sdz"], FILES)) == [
        ("sdb", "sdc"),
        ("sda", "sda"),
        ("sda", "sdz"),
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("sdb", r"b\.opw .* 'sdb'; .*: sda, sdc$"),
        ("sda/sdb/sdc", r"--dev sda/sdb/sdc .*\b3 .*\b2 "),
        ("/", r"a\.opw .* ''"),
    ],
)
def test_unknown_device_is_refused_with_the_available_devices(asked: str, words: str) -> None:
    with pytest.raises(UsageError, match="^" + words):
        pair_disks([make_run("sda", "sdb"), make_run("sda", "sdc")], [asked], FILES)


def test_runs_without_a_common_disk_name_the_option() -> None:
    with pytest.raises(UsageError) as error:
        pair_disks([make_run("sda", "sdb"), make_run("sdc")], (), FILES)
    assert re.search(r"a\.opw .*sda, sdb; b\.opw .*sdc\. .*--dev sda/sdc$", str(error.value))


def test_run_without_requests_has_reasons() -> None:
    with pytest.raises(NotEnoughData, match=r"^b\.opw "):
        pair_disks([make_run("sda"), make_run(idle=("sda",))], (), FILES)
