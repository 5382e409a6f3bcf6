"""Mounts on which files may be made, and reasons against: one row per reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.guard.facts import ForeignIo, PartFacts
from opwatch.guard.mounted import find_mount_obstacles, keep_other_parts
from opwatch.guard.obstacles import find_obstacles
from opwatch.host.usage import Mount
from tests.unit.guard.test_obstacles import CONSENT, FACTS

MOUNT = Mount("259:5", "/mnt", "ext4", "/dev/nvme0n1p2", ("rw",), ("rw",), 31)
PARTS = (
    PartFacts("nvme0n1", contents="gpt"),
    PartFacts("nvme0n1p1", contents="vfat"),
    PartFacts("nvme0n1p2", mounts=("/mnt", "/mnt in the mount namespace of process 7"), contents="ext4"),
)
MOUNTED = replace(FACTS, parts=PARTS, partition="nvme0n1p2", named="nvme0n1p2")


def test_named_filesystem_may_contain_files() -> None:
    assert list(find_mount_obstacles(MOUNT, "nvme0n1p2", (259, 5))) == []
    assert find_obstacles(keep_other_parts(MOUNTED, "nvme0n1p2"), CONSENT) == []


@pytest.mark.parametrize(
    ("mount", "what"),
    [
        (replace(MOUNT, dev="259:6"), " /dev/nvme0n1p2, "),
        (replace(MOUNT, root="/home"), " /home "),
        (replace(MOUNT, filesystem="btrfs"), "btrfs "),
        (replace(MOUNT, filesystem="f2fs"), "f2fs "),
        (replace(MOUNT, super_options=("rw", "data=journal")), "twice"),
    ],
)
def test_other_mount_is_not_the_named_mount(mount: Mount, what: str) -> None:
    [obstacle] = find_mount_obstacles(mount, "nvme0n1p2", (259, 5))
    assert what in obstacle.what
    assert (obstacle.where, bool(obstacle.remedy)) == ("/mnt", True)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        (replace(PARTS[1], mounts=("/boot2",)), " /boot2"),
        (replace(PARTS[1], is_swap=True), "swap"),
        (replace(PARTS[1], holders=("dm-3",)), "dm-3 "),
    ],
)
def test_users_of_other_partitions_are_an_obstacle(changed: PartFacts, what: str) -> None:
    facts = keep_other_parts(replace(MOUNTED, parts=(PARTS[0], changed, PARTS[2])), "nvme0n1p2")
    [obstacle] = find_obstacles(facts, CONSENT)
    assert obstacle.where == "nvme0n1" and what in obstacle.what


def test_few_requests_are_attributed_to_the_filesystem() -> None:
    few, many = ForeignIo(1.0, 0, 12, 0), ForeignIo(1.0, 60, 60, 0)
    assert find_obstacles(keep_other_parts(replace(MOUNTED, foreign=few), "nvme0n1p2"), CONSENT) == []
    [obstacle] = find_obstacles(keep_other_parts(replace(MOUNTED, foreign=many), "nvme0n1p2"), CONSENT)
    assert "60 reads" in obstacle.what


@pytest.mark.parametrize(
    ("facts", "what"),
    [
        (replace(MOUNTED, system=("/",)), "(/)"),
        (replace(MOUNTED, is_virtual=True), "it is not a drive"),
        (replace(MOUNTED, kind="dm-crypt", below=("sda",)), "dm-crypt on sda"),
        (replace(MOUNTED, shared=("NMIC",)), ": NMIC"),
        (replace(MOUNTED, openers=("process 9 (dd)",)), "process 9 (dd) "),
    ],
)
def test_checks_of_a_whole_drive_apply_to_a_mount(facts: object, what: str) -> None:
    reasons = find_obstacles(keep_other_parts(facts, "nvme0n1p2"), CONSENT)  # type: ignore[arg-type]  # of the table
    assert [what in reason.what for reason in reasons] == [True]


def test_drive_must_be_confirmed() -> None:
    facts = keep_other_parts(MOUNTED, "nvme0n1p2")
    for word, what in ((None, "is not confirmed"), ("S12", "is not its serial number")):
        [obstacle] = find_obstacles(facts, replace(CONSENT, serial=word))
        assert what in obstacle.what
