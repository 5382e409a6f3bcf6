from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.compare.pairing import DiskPairs, paired
from opwatch.compare.sampling import CountedOp, CountedStretch, DiskCourse, SampledRun
from opwatch.errors import NotEnoughData, UsageError
from tests.unit.support.looks import look_at
from tests.unit.support.virtual_drive import OCP, VirtualDrive

FILES = ("a.opw", "b.opw")


def run(*names: str, idle: tuple[str, ...] = (), serials: dict[str, str] | None = None) -> SampledRun:
    """Return a run with these disks; the idle ones have no requests, and those with a serial number have a
    drive reading."""
    made = SampledRun()
    for name in (*names, *idle):
        course = DiskCourse(name, drive=name)
        course.add(CountedStretch(1.0, {} if name in idle else {"read": CountedOp(5, 5 << 12, 500, {9: 5})}))
        made.disks[name] = course
        serial = (serials or {}).get(name)
        if serial:
            look = look_at(VirtualDrive(OCP, 1), (f"{name} 1 2",), disk=name)
            made.looks[name] = [replace(look, drive=replace(look.drive, model="ACME", serial=serial))]
    return made


def names(pairs: DiskPairs) -> list[tuple[str, ...]]:
    return [tuple(course.device for course in row) for row in pairs.rows]


def test_single_busy_disks_are_paired_despite_their_names() -> None:
    assert names(paired([run("sda", idle=("sdz",)), run("nvme0n1")], (), FILES)) == [("sda", "nvme0n1")]


def test_several_disks_are_paired_by_name_and_others_noted() -> None:
    pairs = paired([run("sda", "sdb", "sdc"), run("sdd", "sdc", "sda")], (), FILES)
    assert names(pairs) == [("sda", "sda"), ("sdc", "sdc")]
    assert pairs.notes == (
        "sdb of a.opw: not in the other recordings, left out",
        "sdd of b.opw: not in the other recordings, left out",
    )


def test_a_drive_is_its_serial_number() -> None:
    before = run("nvme0n1", "nvme1n1", serials={"nvme0n1": "S1", "nvme1n1": "S2"})
    after = run("nvme0n1", "nvme1n1", serials={"nvme0n1": "S2", "nvme1n1": "S1"})
    assert names(paired([before, after], (), FILES)) == [("nvme0n1", "nvme1n1"), ("nvme1n1", "nvme0n1")]
    other = run("nvme0n1", "sda", serials={"nvme0n1": "S9"})
    with pytest.raises(UsageError, match="no disk in common"):
        paired([before, other], (), FILES)


def test_asked_for() -> None:
    runs = [run("sda", "sdb"), run("sda", "sdc", idle=("sdz",))]
    assert names(paired(runs, ["sdb/sdc", "sda", "sda/sdz"], FILES)) == [
        ("sdb", "sdc"),
        ("sda", "sda"),
        ("sda", "sdz"),
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("sdb", "b.opw has no disk 'sdb': it has sda, sdc"),
        ("sda/sdb/sdc", "--dev sda/sdb/sdc names 3 disks of 2 recordings"),
        ("/", "a.opw has no disk ''"),
    ],
)
def test_unknown_device_is_refused_with_the_available_devices(asked: str, words: str) -> None:
    with pytest.raises(UsageError, match="^" + words):
        paired([run("sda", "sdb"), run("sda", "sdc")], [asked], FILES)


def test_runs_without_a_common_disk_name_the_option() -> None:
    with pytest.raises(UsageError) as error:
        paired([run("sda", "sdb"), run("sdc")], (), FILES)
    assert str(error.value).endswith("a.opw has sda, sdb; b.opw has sdc. Say which: --dev sda/sdc")


def test_a_run_without_requests() -> None:
    with pytest.raises(NotEnoughData, match=r"^b\.opw: there were no requests"):
        paired([run("sda"), run(idle=("sda",))], (), FILES)
