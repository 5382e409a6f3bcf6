"""Reasons against destroying a disk: one row per reason, each tested alone."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from opwatch.codec import decode, encode
from opwatch.errors import BadInput, RefusedError
from opwatch.guard.budget import Budget, Health, find_overruns
from opwatch.guard.facts import ForeignIo, GuardFacts, LoopUser, PartFacts, remove_own_part
from opwatch.guard.identity import DiskIdentity, list_differences
from opwatch.guard.obstacles import (
    NO_CONFIRM,
    NO_DESTROY,
    Consent,
    drop_consent_obstacles,
    find_obstacles,
    require_no_obstacles,
)

DISK = DiskIdentity(
    "nvme0n1", (259, 3), "boot-1", 41, 1 << 40, "A drive", "S123", "eui.0025385a71b0c3d4", nsid=1
)
FACTS = GuardFacts(DISK, "nvme0n1", "disk", is_virtual=False, parts=(PartFacts("nvme0n1"),), claimed=False)
CONSENT = Consent(destroy=True, serial="S123")


def test_an_idle_empty_drive_that_was_confirmed_is_free() -> None:
    assert find_obstacles(FACTS, CONSENT) == []
    require_no_obstacles([])


def with_part(**facts: object) -> GuardFacts:
    part = replace(FACTS.parts[0], **facts)  # type: ignore[arg-type]  # one field a row of the table
    return replace(FACTS, parts=(part,))


@pytest.mark.parametrize(
    ("facts", "where", "what"),
    [
        (replace(FACTS, partition="nvme0n1p2"), "nvme0n1p2", " nvme0n1"),
        (replace(FACTS, kind="dm-lvm", below=("sda",)), "nvme0n1", "dm-lvm on sda"),
        (replace(FACTS, kind="md-raid1"), "nvme0n1", "md-raid1"),
        (replace(FACTS, is_virtual=True), "nvme0n1", "it is not a drive"),
        (replace(FACTS, is_read_only=True), "nvme0n1", "read-only"),
        (replace(FACTS, identity=replace(DISK, size_bytes=0)), "nvme0n1", "medium"),
        (replace(FACTS, system=("/boot",)), "nvme0n1", "(/boot)"),
        (with_part(mounts=("/mnt in the mount namespace of process 7",)), "nvme0n1", "process 7"),
        (with_part(is_swap=True), "nvme0n1", "swap"),
        (with_part(holders=("md0",)), "nvme0n1", "md0 "),
        (with_part(contents="crypto_LUKS"), "nvme0n1", "data: crypto_LUKS"),
        (with_part(unread="blkid is not installed"), "nvme0n1", "unknown: blkid"),
        (replace(FACTS, parts=(*FACTS.parts, PartFacts("nvme0n1p1"))), "nvme0n1p1", " nvme0n1"),
        (replace(FACTS, claimed=True), "nvme0n1", "in use"),
        (replace(FACTS, claimed=None, claim_unknown="no node"), "nvme0n1", "no node"),
        (replace(FACTS, loops=(LoopUser("loop3"),)), "nvme0n1", "loop3 uses "),
        (
            replace(FACTS, loops=(LoopUser("loop3", "gone"),)),
            "nvme0n1",
            "(gone)",
        ),
        (replace(FACTS, openers=("process 9 (qemu)",)), "nvme0n1", "process 9 (qemu) "),
        (replace(FACTS, exports=("the NVMe target nqn.a",)), "nvme0n1", "nqn.a "),
        (replace(FACTS, uncounted=("nvme0c0n1",)), "nvme0n1", " nvme0c0n1 "),
        (replace(FACTS, foreign=ForeignIo(1, 0, 3, 0)), "nvme0n1", "0 reads and 3 writes in 1 s"),
        (replace(FACTS, foreign=ForeignIo(1, 0, 0, 1)), "nvme0n1", "1 in flight"),
        (replace(FACTS, shared=("2 controllers have it",)), "nvme0n1", ": 2 controllers"),
        (replace(FACTS, unseen=("a container",)), "nvme0n1", ": a container"),
        (replace(FACTS, identity=replace(DISK, serial=None)), "nvme0n1", "serial"),
    ],
)
def test_each_obstacle_is_refused(facts: GuardFacts, where: str, what: str) -> None:
    [reason] = find_obstacles(facts, CONSENT)
    assert reason.where == where
    assert what in reason.what
    assert reason.remedy
    with pytest.raises(RefusedError, match=re.escape(str(reason))):
        require_no_obstacles([reason])
    with pytest.raises(RefusedError, match="the sweep stops here"):
        require_no_obstacles([reason], is_begun=True)


@pytest.mark.parametrize("use", [{"mounts": ("/mnt",)}, {"holders": ("dm-0",)}, {"is_swap": True}])
def test_own_partition_is_not_an_obstacle_until_used(use: dict[str, Any]) -> None:
    ours, other = PartFacts("nvme0n1p1", contents="what a load wrote"), PartFacts("nvme0n1p2")
    alone = replace(FACTS, parts=(*FACTS.parts, ours))
    assert find_obstacles(remove_own_part(alone, "nvme0n1p1"), CONSENT) == []
    [reason] = find_obstacles(
        remove_own_part(replace(FACTS, parts=(*alone.parts, other)), "nvme0n1p1"), CONSENT
    )
    assert reason.where == "nvme0n1p2"
    used = replace(FACTS, parts=(*FACTS.parts, replace(ours, **use)))
    assert {reason.where for reason in find_obstacles(remove_own_part(used, "nvme0n1p1"), CONSENT)} == {
        "nvme0n1p1"
    }


@pytest.mark.parametrize(
    ("use", "what"),
    [
        ({"claimed": True}, "kernel"),
        ({"claim_unknown": "no such device"}, ": no such device"),
        ({"foreign": ForeignIo(1, 0, 3, 0)}, " 3 writes "),
        ({"openers": ("process 9 (tar)",)}, "process 9 (tar) "),
    ],
)
def test_loop_device_with_a_claim_is_refused_in_a_container(use: dict[str, Any], what: str) -> None:
    loop = replace(FACTS, kind="loop", is_virtual=True, unseen=("processes of the host",), **use)
    [reason] = find_obstacles(loop, replace(CONSENT, allow_virtual=True))
    assert what in reason.what


def test_unseen_users_are_accepted_only_for_loop_devices() -> None:
    """A virtual machine's disk, like a real drive, may be in use in other containers."""
    unseen = replace(FACTS, is_virtual=True, unseen=("a container",))
    allowed = replace(CONSENT, allow_virtual=True)
    [reason] = find_obstacles(unseen, allowed)
    assert reason.what.endswith(f": {unseen.unseen[0]}")
    assert find_obstacles(replace(unseen, kind="loop"), allowed) == []
    [reason] = find_obstacles(replace(unseen, kind="loop", loops=(LoopUser("loop3", "gone"),)), allowed)
    assert "loop3" in reason.what and "(gone)" in reason.what


@pytest.mark.parametrize("serial", ["s123", "S12", "S1234", "S123 ", "", "nvme0n1", "*"])
def test_similar_serial_number_is_not_a_confirmation(serial: str) -> None:
    [reason] = find_obstacles(FACTS, replace(CONSENT, serial=serial))
    assert reason.what.startswith(f"--confirm {serial} ")


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ({}, {"name": "sdb", "serial": None}),
        ({}, {"name": "sdb", "size_bytes": 5}),
        ({"wwid": None}, {"name": "sdb", "wwid": None}),
    ],
)
def test_the_same_drive_by_another_path_is_refused(mine: dict[str, str], other: dict[str, str]) -> None:
    disk = replace(DISK, **mine)  # type: ignore[arg-type]  # one field a row of the table
    path = replace(DISK, **other)  # type: ignore[arg-type]  # one field a row of the table
    [reason] = find_obstacles(replace(FACTS, identity=disk, alike=(path,)), CONSENT)
    assert "sdb" in reason.what
    assert "/sys/block/sdb/device/delete" in reason.remedy


@pytest.mark.parametrize(
    "change", [{"nsid": 2, "wwid": "eui.2"}, {"wwid": "eui.3"}, {"wwid": None}, {"nsid": 9}]
)
def test_shared_serial_number_is_not_a_confirmation(change: dict[str, object]) -> None:
    other = replace(DISK, name="nvme0n2", **change)  # type: ignore[arg-type]  # one field a row of the table
    shared = replace(FACTS, alike=(other,))
    [reason] = find_obstacles(shared, CONSENT)
    assert "S123" in reason.what and "nvme0n2" in reason.what
    assert reason.remedy == f"add --confirm {DISK.wwid}"
    assert find_obstacles(shared, replace(CONSENT, serial=DISK.wwid)) == []
    [reason] = find_obstacles(shared, replace(CONSENT, serial="eui.2"))
    assert reason.what.startswith("--confirm eui.2 ")


def test_drives_with_only_a_shared_serial_number_are_refused() -> None:
    disk, other = replace(DISK, wwid=None), replace(DISK, name="sdb", wwid=None, model="Another")
    for word in ("S123", "None", ""):
        assert (
            len(find_obstacles(replace(FACTS, identity=disk, alike=(other,)), replace(CONSENT, serial=word)))
            == 1
        )


def test_a_wwid_confirms_only_where_a_serial_number_does_not() -> None:
    [reason] = find_obstacles(FACTS, replace(CONSENT, serial=DISK.wwid))
    assert reason.what.startswith(f"--confirm {DISK.wwid} ")


def test_missing_consent_is_the_only_obstacle_of_a_plan() -> None:
    reasons = find_obstacles(FACTS, Consent())
    assert reasons == [NO_DESTROY, NO_CONFIRM]
    assert drop_consent_obstacles(reasons) == []


def test_every_reason_is_reported() -> None:
    busy = replace(with_part(is_swap=True, mounts=("/a", "/b")), claimed=True)
    reasons = find_obstacles(busy, CONSENT)
    assert len(reasons) == 4
    with pytest.raises(RefusedError, match=r"\(3 more ") as refused:
        require_no_obstacles(reasons)
    assert len(refused.value.log.split("\n")) == 3


def test_own_disk_is_accepted_with_allow_virtual() -> None:
    virtual = replace(FACTS, kind="loop", is_virtual=True, unseen=("12 threads",))
    assert find_obstacles(virtual, replace(CONSENT, allow_virtual=True)) == []
    assert len(find_obstacles(virtual, CONSENT)) == 2


def test_allowing_virtual_disks_allows_no_other_disks() -> None:
    real = replace(FACTS, unseen=("a container",), claimed=True)
    assert find_obstacles(real, replace(CONSENT, allow_virtual=True)) == find_obstacles(real, CONSENT)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"serial": "S124"}, "serial number"),
        ({"wwid": "eui.1"}, "wwid"),
        ({"size_bytes": 1 << 39}, "size"),
        ({"nsid": 2}, "namespace"),
        ({"diskseq": 42}, "diskseq 42, not 41"),
    ],
)
def test_a_drive_that_was_exchanged_since_the_plan_is_noticed(change: dict[str, object], words: str) -> None:
    present = replace(DISK, **change)  # type: ignore[arg-type]  # one field a row of the table
    [unlike] = list_differences(DISK, present)
    assert words in unlike
    reasons = find_obstacles(replace(FACTS, identity=present), replace(CONSENT, planned=DISK))
    assert any(unlike in reason.what for reason in reasons)


def test_a_drive_keeps_its_identity_under_another_name_and_after_another_boot() -> None:
    assert list_differences(DISK, replace(DISK, name="nvme3n1", dev=(259, 9))) == []
    assert list_differences(DISK, replace(DISK, boot="boot-2", diskseq=7)) == []


def test_sequence_number_of_another_boot_is_not_accepted() -> None:
    loop = DiskIdentity("loop1", (7, 1), "boot-1", 5, 1 << 30, serial="diskseq-5")
    assert list_differences(loop, loop) == []
    [unlike] = list_differences(loop, replace(loop, boot="boot-2"))
    assert "diskseq-5" in unlike


def test_identity_is_read_back_as_written() -> None:
    for identity in (DISK, DiskIdentity("loop1", (7, 1), "b", None, 5)):
        assert decode(DiskIdentity, encode(identity), "a journal") == identity
    for wrong in ({"dev": [1]}, {"dev": [1, "2"]}, {"size_bytes": -1}, {"boot": None}, {"serial": 5}):
        with pytest.raises(BadInput):
            decode(DiskIdentity, encode(DISK) | wrong, "a journal")


BEFORE = Health(host_bytes=1000, percentage_used=3, available_spare=100, spare_threshold=10, celsius=30)


@pytest.mark.parametrize(
    ("change", "written", "words"),
    [
        ({}, 101, "101 bytes "),
        ({"celsius": 70}, 0, "70 °C"),
        ({"percentage_used": 5}, 0, "2 % "),
        ({"percentage_used": 2}, 0, "wear "),
        ({"available_spare": 9}, 0, "spare 9 %"),
        ({"critical_warning": 4}, 0, " 04h"),
        ({"host_bytes": 999}, 0, " bytes decreased"),
    ],
)
def test_exceeded_budget_ends_the_load(change: dict[str, int], written: int, words: str) -> None:
    now = replace(BEFORE, **change)
    [reason] = find_overruns(Budget(100), BEFORE, now, written, "nvme0n1")
    assert words in reason.what
    assert reason.where == "nvme0n1"


def test_load_within_its_budget_continues() -> None:
    now = replace(BEFORE, host_bytes=1100, percentage_used=4, celsius=69, critical_warning=0)
    assert find_overruns(Budget(100), BEFORE, now, 100, "nvme0n1") == []
    assert find_overruns(Budget(100), Health(), Health(), 100, "nvme0n1") == []
