"""Proof for each disk, and how far down the stack: a disk is proven only by its own evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.sinks.trim_audit import build_audit_document, format_audit
from opwatch.trim.audit.audit import Audit, BackingFile, ProofLevel, ReadBack, Verdict
from opwatch.trim.audit.flow import SenderKind, Stage
from opwatch.trim.audit.ledger import build_audit
from opwatch.trim.audit.verdicts import exit_status
from opwatch.trim.layers.arrays import MdFacts, map_to_slots
from opwatch.trim.layers.kinds import find_granule
from opwatch.trim.layers.remap import map_down
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack.dmtable import DmTarget
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.trim.stale.sentinel import ReadsAs
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_read_back,
    make_stack,
)

MIB = 1 << 20
GONE, KEPT = {ReadsAs.ZEROS: MIB}, {ReadsAs.UNCHANGED: MIB}
DISKS = (make_layer("sda", "8:0"), make_layer("sdb", "8:16"))
MIRROR = make_layer("md0", "9:0", Kind.MD, "sda", "sdb", level="raid1", raid_disks=2)


def audit_layers(
    top: Layer, leaves: tuple[Layer, ...], read_back: ReadBack | None, *between: Layer, copies: int = 1
) -> Audit:
    """Audit a trim in which every disk completed all discards."""
    layers = (top, *between, *leaves)
    flows = [make_extent_flow(top.dev, MIB)]
    flows += [make_flow(Stage.BIO, one.dev, MIB, disk=one.device) for one in (top, *between)]
    share = MIB * copies // len(leaves)
    flows += [part for leaf in leaves for part in make_disk_flows(leaf.device, leaf.dev, share)]
    return build_audit(make_evidence(make_stack(*layers), flows, MIB, read_back=read_back), "/m")


@pytest.mark.parametrize(
    ("read", "verdict"),
    [
        ({"sda": GONE, "sdb": GONE}, Verdict.PROVEN),
        ({"sda": GONE, "sdb": KEPT}, Verdict.PARTIAL),
        ({"sda": KEPT, "sdb": KEPT}, Verdict.UNKNOWN),
        ({"sda": GONE}, Verdict.ACCEPTED),
        ({"md0": GONE}, Verdict.ACCEPTED),  # any leg may have answered
        ({"md0": KEPT}, Verdict.UNKNOWN),
        ({}, Verdict.ACCEPTED),
    ],
)
def test_mirror_legs_are_proven_separately(
    read: Mapping[str, Mapping[ReadsAs, int]], verdict: Verdict
) -> None:
    result = audit_layers(MIRROR, DISKS, make_read_back(read), copies=2)
    assert result.verdict is verdict
    if read.get("sdb") is KEPT:
        assert "written" in str([why.observed for why in result.reasons])


def test_contradicting_evidence_keeps_every_doubt() -> None:
    """--prove never reports fewer reasons: the drive below a file gets no discards, whatever data the file
    still has."""
    place = {"backing_file": "/srv/image", "backing_filesystem": "ext4", "backing_mount": "/srv"}
    top = make_layer("loop0", "7:0", Kind.LOOP, **place)  # type: ignore[arg-type]
    flows = [make_extent_flow("7:0", MIB), *make_disk_flows("loop0", "7:0", MIB)]
    answer = make_read_back({"loop0": GONE}, {"loop0": SentinelMap(MIB, MIB, 4096)})
    plain = build_audit(make_evidence(make_stack(top), flows, MIB), "/m")
    proven = build_audit(make_evidence(make_stack(top), flows, MIB, read_back=answer), "/m")
    assert proven.verdict is Verdict.PARTIAL
    assert {why.code for why in plain.reasons} < {why.code for why in proven.reasons}


def test_thin_volume_does_not_prove_the_disk_below() -> None:
    thin = make_layer("dm-3", "253:3", Kind.THIN, "dm-2", target="thin")
    pool = make_layer("dm-2", "253:2", Kind.THIN_POOL, "sda", target="thin-pool")
    result = audit_layers(thin, DISKS[:1], make_read_back({"dm-3": GONE}), pool)
    assert result.verdict is Verdict.PROVEN_PARTWAY
    [proof] = result.proofs
    assert (proof.device, proof.down_to) == ("sda", "thin dm-3")
    assert {why.code for why in result.reasons} == {"unproven"}
    [entry] = build_audit_document(result)["proofs"]
    assert entry["standing"] == "proven partway"
    [by] = entry["by"]
    assert by.startswith(f"{MIB} B ") and by.endswith(" dm-3")
    assert any(re.search(r"limit: .*\bdm-3: sda\b", line) for line in format_audit(result))


@pytest.mark.parametrize(
    ("facts", "verdict", "down_to"),
    [
        ({"virtual": True}, Verdict.PROVEN_PARTWAY, "the virtual disk sda"),
        ({"drivers": ("sd", "megaraid_sas")}, Verdict.PROVEN_PARTWAY, "sda of a RAID controller"),
        ({"transport": "iscsi"}, Verdict.PROVEN_PARTWAY, "the logical unit sda"),
        ({"transport": "nvme-tcp"}, Verdict.PROVEN_PARTWAY, "the logical unit sda"),
        ({"transport": "sata"}, Verdict.PROVEN, "the drive sda"),
    ],
)
def test_proof_ends_at_hidden_lower_devices(facts: dict[str, Any], verdict: Verdict, down_to: str) -> None:
    disk = make_layer("sda", "8:0", **facts)
    result = _audit_disk(disk, make_read_back({"sda": GONE}))
    assert (result.verdict, result.proofs[0].down_to) == (verdict, down_to)


def _audit_disk(
    disk: Layer, read_back: ReadBack | None, files: Mapping[str, BackingFile] | None = None
) -> Audit:
    evident = make_evidence(
        make_stack(disk), [make_extent_flow(disk.dev, MIB), *make_disk_flows(disk.device, disk.dev, MIB)], MIB
    )
    return build_audit(replace(evident, read_back=read_back, files=files or {}), "/m")


def make_loop(filesystem: str | None = "ext4") -> Layer:
    place: dict[str, Any] = {"backing_filesystem": filesystem, "backing_mount": "/srv"} if filesystem else {}
    return make_layer("loop0", "7:0", Kind.LOOP, backing_file="/srv/image", **place)


HOLE = {"loop0": SentinelMap(MIB, MIB, 0)}


@pytest.mark.parametrize(
    ("filesystem", "maps", "verdict", "down_to"),
    [
        ("ext4", HOLE, Verdict.PROVEN_PARTWAY, "the file /srv/image"),
        ("tmpfs", HOLE, Verdict.PROVEN, "the file /srv/image in memory"),
        # Zeros may come from allocated blocks that contain zeros.
        ("ext4", {}, Verdict.PROVEN_PARTWAY, "loop device loop0"),
        ("tmpfs", {}, Verdict.PROVEN_PARTWAY, "loop device loop0"),
        ("ext4", {"loop0": SentinelMap(MIB, 0, 0)}, Verdict.PROVEN_PARTWAY, "loop device loop0"),
        (None, {}, Verdict.PROVEN_PARTWAY, "loop device loop0"),
    ],
)
def test_loop_device_is_proven_down_to_its_file(
    filesystem: str | None, maps: dict[str, SentinelMap], verdict: Verdict, down_to: str
) -> None:
    result = _audit_disk(make_loop(filesystem), make_read_back({"loop0": GONE}, maps))
    assert (result.verdict, result.proofs[0].down_to) == (verdict, down_to)


def test_zeros_that_allocate_blocks_are_not_freed() -> None:
    result = _audit_disk(make_loop(), make_read_back({"loop0": GONE}, {"loop0": SentinelMap(MIB, MIB, MIB)}))
    assert result.verdict is Verdict.UNKNOWN


def test_doubt_about_lower_layers_stays() -> None:
    without = _audit_disk(make_loop(), None)
    proven = _audit_disk(make_loop(), make_read_back({"loop0": GONE}, HOLE))
    assert (
        {why.code for why in without.reasons} == {why.code for why in proven.reasons} == {"loop-frees-file"}
    )


def test_blocks_shared_with_other_files_are_not_freed() -> None:
    """The file gave up 1 MiB, and its filesystem freed a quarter."""
    files = {"loop0": BackingFile(MIB // 4, MIB * 3 // 4)}
    result = _audit_disk(make_loop("xfs"), make_read_back({"loop0": GONE}, HOLE), files)
    assert (result.verdict, result.reached_bytes) == (Verdict.PARTIAL, MIB // 4)
    [granules] = [row for row in result.rows if row.layer == "granules"]
    assert [(why.code, why.lost_bytes) for why in granules.reasons] == [("loop-file-shared", MIB * 3 // 4)]


def test_several_paths_count_as_a_single_drive() -> None:
    head = make_layer("nvme0n1", "259:0", Kind.MULTIPATH, "nvme0c0n1", "nvme0c1n1")
    paths = (make_layer("nvme0c0n1", "0:0"), make_layer("nvme0c1n1", "0:0"))
    flows = [make_extent_flow("259:0", MIB), make_flow(Stage.BIO, "259:0", MIB, disk="nvme0n1")]
    flows += [make_flow(Stage.REMAPPED, "259:0", MIB, disk="nvme0c0n1")]
    flows += [make_flow(stage, "259:0", MIB, disk="nvme0c0n1") for stage in (Stage.ISSUED, Stage.DONE)]
    evident = make_evidence(make_stack(head, *paths), flows, MIB, read_back=make_read_back({"nvme0n1": GONE}))
    assert build_audit(evident, "/m").verdict is Verdict.PROVEN


_READS = st.sampled_from(
    [{}, GONE, KEPT, {ReadsAs.ZEROS: MIB, ReadsAs.UNCHANGED: 4096}, {ReadsAs.OTHER: MIB}]
)
_LAYERS = st.sampled_from(["thin", "linear", "cache", "raid1", "crypt"])


@given(st.lists(_LAYERS, max_size=3), st.integers(1, 3), st.data(), st.booleans(), st.booleans())
def test_no_stack_is_proven_without_every_disk(
    kinds: list[str], disks: int, data: st.DataObject, virtual: bool, answered: bool
) -> None:
    """For every stack of upper layers, whatever is read there."""
    leaves = tuple(make_layer(f"sd{'abc'[at]}", f"8:{at}", virtual=virtual) for at in range(disks))
    uppers: list[Layer] = []
    below = tuple(leaf.device for leaf in leaves)
    for at, kind in enumerate(kinds):
        name = f"dm-{at}"
        if kind == "raid1":
            uppers.insert(
                0, make_layer(name, f"253:{at}", Kind.MD, *below, level="raid1", raid_disks=len(below))
            )
        elif kind in ("thin", "crypt"):
            uppers.insert(0, make_layer(name, f"253:{at}", Kind(kind), *below, target=kind))
        else:
            uppers.insert(0, make_layer(name, f"253:{at}", Kind.DM, *below, target=kind))
        below = (name,)
    layers = (*uppers, *leaves)
    read = {one.device: data.draw(_READS) for one in layers} if answered else {}
    flows = [part for leaf in leaves for part in make_disk_flows(leaf.device, leaf.dev, MIB)]
    whole = make_stack(*layers, tops=below)
    result = build_audit(
        make_evidence(whole, flows, None, read_back=make_read_back(read) if read else None), "/m"
    )
    gone = [ReadsAs.ZEROS in read.get(leaf.device, {}) for leaf in leaves]
    kept = [ReadsAs.UNCHANGED in one for one in read.values()]
    assert result.verdict is not Verdict.PROVEN or (all(gone) and not any(kept) and not virtual)
    for proof, is_gone in zip(result.proofs, gone, strict=True):
        assert proof.standing is not ProofLevel.PROVEN or is_gone


# --- helper disks, and arrays that write ---


def test_array_journal_is_excluded_from_a_trim() -> None:
    """The array itself discards the journal as the journal empties."""
    names = ("sda", "sdb", "sdc")
    disks = tuple(make_layer(name, f"8:{at}") for at, name in enumerate((*names, "sdj")))
    array = make_layer(
        "md0",
        "9:0",
        Kind.MD,
        *names,
        "sdj",
        level="raid5",
        raid_disks=3,
        chunk_bytes=65536,
        members=names,
    )
    flows = [make_extent_flow("9:0", 2 * MIB), make_flow(Stage.BIO, "9:0", 2 * MIB, disk="md0")]
    flows += [
        part for one in disks[:3] for part in make_disk_flows(one.device, one.dev, MIB, who=SenderKind.KERNEL)
    ]
    flows += make_disk_flows("sdj", "8:3", 77 * MIB, who=SenderKind.KERNEL)
    result = build_audit(make_evidence(make_stack(array, *disks), flows, 2 * MIB), "/m")
    assert (result.reached_bytes, result.unexplained_bytes) == (3 * MIB, 0)
    assert [proof.device for proof in result.proofs] == list(names)


@pytest.mark.parametrize("doing", ["idle", "recover", "resync", "reshape"])
def test_array_that_writes_its_members_proves_nothing(doing: str) -> None:
    array = replace(MIRROR, facts=MdFacts(level="raid1", raid_disks=2, sync_action=doing))
    result = audit_layers(array, DISKS, make_read_back({"sda": GONE, "sdb": GONE}), copies=2)
    writes = doing != "idle"
    assert result.verdict is (Verdict.ACCEPTED if writes else Verdict.PROVEN)
    assert ("array-writes" in {why.code for row in result.rows for why in row.reasons}) is writes


def test_each_device_of_a_filesystem_counts() -> None:
    """One device takes no discards, and the filesystem sends no events for the device."""
    disks = (make_layer("sda", "8:0"), make_layer("sdb", "8:16", max_bytes=0))
    both = make_stack(*disks, kind="f2fs", tops=("sda", "sdb"))
    flows = [make_extent_flow("8:0", MIB), *make_disk_flows("sda", "8:0", MIB)]
    result = build_audit(make_evidence(both, flows, MIB, read_back=make_read_back({"sda": GONE})), "/m")
    assert result.verdict is Verdict.PARTIAL
    assert both.filesystem
    unknown = replace(both.filesystem, unknown={"devices": "no superblock"}, devices=("sda",))
    alone = make_evidence(Stack(unknown, disks[:1]), flows, MIB, read_back=make_read_back({"sda": GONE}))
    assert build_audit(alone, "/m").verdict is Verdict.ACCEPTED


# --- positions of an array's copies ---


@pytest.mark.parametrize(
    ("array", "where"),
    [
        (MdFacts(level="raid1", raid_disks=2), [(0, 8192, 12288), (1, 8192, 12288)]),
        (MdFacts(level="raid0", raid_disks=2, chunk_bytes=4096), [(0, 4096, 8192)]),
        (
            MdFacts(level="raid10", raid_disks=3, chunk_bytes=4096, layout=0x102),
            [(1, 4096, 8192), (2, 4096, 8192)],
        ),
        (MdFacts(level="raid10", raid_disks=4, chunk_bytes=4096, layout=0x201), []),
        (MdFacts(level="raid5", raid_disks=3, chunk_bytes=4096, layout=2), []),
        (MdFacts(level="raid0"), []),
    ],
)
def test_array_copies_are_mapped(array: MdFacts, where: list[tuple[int, int, int]]) -> None:
    assert list(map_to_slots(array, 8192, 12288)) == where


def test_descend_returns_every_copy_on_request() -> None:
    array = replace(
        MIRROR,
        facts=MdFacts(level="raid1", raid_disks=3, members=("sdb", "-", "sda"), data_offsets=(MIB, 0, 4096)),
    )
    whole = Stack(None, (array, *DISKS))
    place = Extents.from_pairs([(8192, 12288)])
    landings = {one.device: list(one.extents) for one in map_down(whole, "md0", place, copies=True)}
    assert landings == {"sdb": [(MIB + 8192, MIB + 12288)], "sda": [(12288, 16384)]}
    assert [one.device for one in map_down(whole, "md0", place)] == ["md0"]


def test_cache_origin_is_read_directly() -> None:
    """Trimmed blocks stay in the cache and are read there, which proves nothing about the drive below."""
    table = (DmTarget(0, 1 << 20, "cache", ("8:32", "8:16", "8:0", "512", "1", "writethrough", "smq", "0")),)
    top = replace(make_layer("dm-0", "253:0", Kind.DM, "sda", "sdb", target="cache"), table=table)
    place = Extents.from_pairs([(8192, 12288)])
    landings = list(map_down(Stack(None, (top, *DISKS)), "dm-0", place, copies=True))
    assert [(one.device, list(one.extents), one.stopped) for one in landings] == [
        ("sda", [(8192, 12288)], None)
    ]
    assert [one.device for one in map_down(Stack(None, (top, *DISKS)), "dm-0", place)] == ["dm-0"]


@pytest.mark.parametrize(("offset", "granule"), [(None, (4096, 0)), (512, (4096, 3584)), (8192, (4096, 0))])
def test_granule_is_the_block_of_the_backing_file(offset: int | None, granule: tuple[int, int]) -> None:
    """The loop device starts within a block of its file and reports no alignment."""
    facts: dict[str, Any] = {"offset_bytes": offset} if offset else {}
    assert find_granule(make_layer("loop0", "7:0", Kind.LOOP, **facts)) == granule


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([Verdict.ACCEPTED, Verdict.PROVEN], 0),
        ([Verdict.NOT_SENT, Verdict.REJECTED], 32),
        ([Verdict.ACCEPTED, Verdict.REJECTED], 64),
        ([Verdict.PARTIAL], 64),
        ([Verdict.UNKNOWN], 6),
        ([Verdict.UNKNOWN, Verdict.ACCEPTED], 64),
    ],
)
def test_exit_status_follows_the_proof(verdicts: list[Verdict], status: int) -> None:
    assert exit_status(verdicts) == status
