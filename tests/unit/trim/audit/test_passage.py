"""Effects of layers on a discarded range: prediction and audit use the same model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.trim.audit.audit import Audit, Verdict
from opwatch.trim.audit.flow import DiscardLoss, SenderKind, Stage
from opwatch.trim.audit.ledger import build_audit
from opwatch.trim.check.prediction import Outlook, predict_trim
from opwatch.trim.layers.arrays import DmRaidFacts
from opwatch.trim.layers.discard_path import find_retentions, find_short_paths
from opwatch.trim.layers.thin import ThinPoolFacts
from opwatch.trim.stack.dmtable import DmTarget, PoolMode
from opwatch.trim.stack.facts import DmFacts
from opwatch.trim.stack.layers import Kind, Layer
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_stack,
)

MIB = 1 << 20
DISK = make_layer("sda", "8:0")


def map_losses(result: Audit) -> dict[str, int | None]:
    return {why.code: why.lost_bytes for row in result.rows for why in row.reasons}


def _make_mapped(kind: str, *words: str) -> tuple[Layer, ...]:
    flags = tuple(word for word in words if "discard" in word) or None
    top = make_layer("dm-0", "253:0", Kind.DM, "sda", target=kind)
    return replace(top, table=(DmTarget(0, 8, kind, words),), facts=DmFacts(flags=flags)), DISK


def _make_thin(facts: ThinPoolFacts) -> tuple[Layer, ...]:
    volume = make_layer("dm-0", "253:0", Kind.THIN, "dm-1", target="thin")
    pool = make_layer("dm-1", "253:1", Kind.THIN_POOL, "sda", target="thin-pool")
    return volume, replace(pool, facts=facts), DISK


_FACTS = DmRaidFacts(level="raid5", raid_disks=3, chunk_bytes=64 << 10)
_RAID = replace(make_layer("dm-0", "253:0", Kind.DM, "sda", target="raid"), facts=_FACTS)
_SHORT = replace(_RAID, limits=replace(_RAID.limits, max_bytes=64 << 10)), DISK
KEEPING = {
    "raid456-partial-stripe": _SHORT,
    "thin-no-passdown": _make_thin(ThinPoolFacts(discards="no_discard_passdown")),
    "thin-ignores-discard": _make_thin(ThinPoolFacts(discards="ignore_discard")),
    "thin-pool-read-only": _make_thin(ThinPoolFacts(mode=PoolMode.READ_ONLY)),
    "cache-no-passdown": _make_mapped("cache", "8:0", "8:0", "8:0", "512", "1", "no_discard_passdown"),
    "snapshot-swallows": _make_mapped("snapshot", "8:0", "8:0", "P", "8"),
    "target-error": _make_mapped("error"),
    "vdo-keeps": _make_mapped("vdo"),
}


@pytest.mark.parametrize("code", KEEPING)
def test_predicted_cause_explains_the_audit(code: str) -> None:
    """Where the model says that a layer keeps every discard, check predicts no trim and the audit names the
    same cause."""
    layers = make_stack(*KEEPING[code])
    assert [kept.code for kept in find_retentions(layers, layers.layers[0])] == [code]
    foretold = predict_trim(layers)
    assert foretold.outlook is Outlook.NOTHING
    assert code in {why.code for why in foretold.reasons}
    flows = [make_extent_flow("253:0", MIB), make_flow(Stage.BIO, "253:0", MIB, disk="dm-0")]
    result = build_audit(make_evidence(layers, flows, MIB), "/m")
    assert map_losses(result) == {code: MIB}
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.NOT_SENT, 0, 0)


def test_realtime_device_without_discards_is_noted() -> None:
    one = make_stack(DISK, make_layer("sdb", "8:16"), kind="xfs", tops=("sda", "sdb"))
    to_data = make_disk_flows("sda", "8:0", MIB)
    result = build_audit(make_evidence(one, to_data, MIB), "/m")
    assert [note for note in result.notes if "realtime" in note and " sdb" in note]
    assert result.verdict is Verdict.ACCEPTED
    both = build_audit(make_evidence(one, [*to_data, *make_disk_flows("sdb", "8:16", MIB)], MIB), "/m")
    assert (both.reached_bytes, both.unexplained_bytes) == (2 * MIB, 0)
    assert not [note for note in both.notes if "realtime" in note]


def test_discards_of_a_fuse_program_count_for_the_filesystem() -> None:
    one = make_stack(DISK, kind="fuseblk")
    result = build_audit(
        make_evidence(one, make_disk_flows("sda", "8:0", MIB, who=SenderKind.OTHER), MIB), "/m"
    )
    assert (result.reached_bytes, result.unexplained_bytes, map_losses(result)) == (MIB, 0, {})
    assert "FUSE server" in (result.rows[0].unknown or "")


def test_failing_segment_explains_the_missing_bytes() -> None:
    """A discard crosses into the failing segment: a part is passed on before the whole discard fails."""
    table = (DmTarget(0, 8, "linear", ("8:0", "0")), DmTarget(8, 8, "error", ()))
    top = replace(make_layer("dm-0", "253:0", Kind.DM, "sda", target="linear+error"), table=table)
    flows = [make_extent_flow("253:0", 4 * MIB), make_flow(Stage.BIO, "253:0", 4 * MIB, disk="dm-0")]
    flows += [
        make_flow(Stage.BIO_DONE, "253:0", 3 * MIB, disk="dm-0", status=10),
        *make_disk_flows("sda", "8:0", 2 * MIB),
    ]
    result = build_audit(make_evidence(make_stack(top, DISK), flows, 0), "/m")
    assert map_losses(result) == {"target-fails": 2 * MIB}
    assert (result.verdict, result.reached_bytes, result.unexplained_bytes) == (Verdict.PARTIAL, 2 * MIB, 0)


@pytest.mark.parametrize("status", [0, 1])
def test_lower_device_that_stopped_accepting_discards_is_named(status: int) -> None:
    """Linux 6.1 fails the discard and 6.12 reports success. Either way no bytes arrive below."""
    top = make_layer("dm-0", "253:0", Kind.DM, "sda", target="delay")
    none = replace(DISK, limits=replace(DISK.limits, max_bytes=0, max_hw_bytes=0))
    flows = [make_extent_flow("253:0", MIB), make_flow(Stage.BIO, "253:0", MIB, disk="dm-0")]
    flows += [make_flow(Stage.BIO_DONE, "253:0", MIB, disk="dm-0", status=status)]
    result = build_audit(make_evidence(make_stack(top, none), flows, MIB), "/m")
    assert map_losses(result) == {"limit-zero": MIB}
    assert (result.reached_bytes, result.unexplained_bytes) == (0, 0)
    assert result.verdict is (Verdict.REJECTED if status else Verdict.NOT_SENT)


@pytest.mark.parametrize(
    ("features", "most", "is_lost"),
    [("0", MIB, True), ("2 queue_mode bio", MIB, False), ("0", 1 << 31, False)],
)
def test_path_with_a_lower_discard_limit_than_multipath(features: str, most: int, is_lost: bool) -> None:
    """dm-multipath does not split copied requests again: the first one above the limit fails the path."""
    words = (*features.split(), "1", "1", "round-robin", "0", "1", "1", "8:0", "1000")
    top = make_layer("dm-0", "253:0", Kind.DM, "sda", target="multipath")
    top = replace(top, table=(DmTarget(0, 1 << 22, "multipath", words),))
    path = replace(DISK, limits=replace(DISK.limits, max_bytes=most))
    flows = [make_extent_flow("253:0", 4 * MIB), make_flow(Stage.BIO, "253:0", 4 * MIB, disk="dm-0")]
    flows += [
        make_flow(Stage.DONE, "253:0", 3 * MIB, disk="dm-0", status=10),
        *make_disk_flows("sda", "8:0", MIB),
    ]
    layers = make_stack(top, path)
    assert [short.where for short in find_short_paths(layers)] == ["sda"] * is_lost
    result = build_audit(make_evidence(layers, flows, 0), "/m")
    assert map_losses(result).get("limit-shorter") == (3 * MIB if is_lost else None)
    foretold = predict_trim(layers)
    assert foretold.outlook is (Outlook.UNKNOWN if is_lost else Outlook.REACHES)
    assert ("limit-shorter" in {why.code for why in foretold.reasons}) == is_lost
    if is_lost:
        assert (result.verdict, result.unexplained_bytes) == (Verdict.PARTIAL, 0)


@pytest.mark.parametrize("bios_full", [0, 7])
def test_requests_beyond_the_map_are_lost_to_the_trace(bios_full: int) -> None:
    """If the map had no room for a bio, the sender of the request is unknown."""
    flows = [
        make_extent_flow("8:0", 3 * MIB),
        make_flow(Stage.BIO, "8:0", 3 * MIB, disk="sda"),
        make_flow(Stage.ISSUED, "8:0", 2 * MIB, disk="sda"),
        make_flow(Stage.DONE, "8:0", 2 * MIB, disk="sda"),
        make_flow(Stage.DONE, "8:0", MIB, disk="sda", who=SenderKind.OTHER),
    ]
    one = make_evidence(make_stack(DISK), flows, 3 * MIB)
    trace = replace(one.trace, loss=DiscardLoss(bios_full=bios_full))
    result = build_audit(replace(one, trace=trace), "/m")
    assert (map_losses(result).get("trace-lost"), result.unexplained_bytes) == (
        (MIB, 0) if bios_full else (None, MIB)
    )


def test_pool_that_keeps_discards_may_accept_none() -> None:
    """Linux 6.1 and 6.12: the pool's own limit is then 0, and the volume's limit is not."""
    volume, pool, disk = _make_thin(ThinPoolFacts(discards="no_discard_passdown"))
    pool = replace(pool, limits=replace(pool.limits, max_bytes=0, max_hw_bytes=0))
    codes = {why.code for why in predict_trim(make_stack(volume, pool, disk)).reasons}
    assert "thin-no-passdown" in codes
    assert "thin-ignores-discard" not in codes


@pytest.mark.parametrize("status", [0, 1])
def test_pool_with_data_that_lost_discard_support(status: int) -> None:
    """The pool checked its data device when the table was loaded and still passes discards on. Unmapped
    chunks are ignored."""
    volume, pool, disk = _make_thin(ThinPoolFacts(discards="discard_passdown"))
    none = replace(disk, limits=replace(disk.limits, max_bytes=0, max_hw_bytes=0))
    layers = make_stack(volume, pool, none)
    flows = [make_extent_flow("253:0", 3 * MIB), make_flow(Stage.BIO, "253:0", 3 * MIB, disk="dm-0")]
    flows += [make_flow(Stage.BIO_DONE, "253:0", 3 * MIB, disk="dm-0")]
    flows += [make_flow(Stage.BIO, "253:1", MIB, disk="dm-1", who=SenderKind.KERNEL)]
    flows += [make_flow(Stage.BIO_DONE, "253:1", MIB, disk="dm-1", status=status, who=SenderKind.KERNEL)]
    result = build_audit(make_evidence(layers, flows, 3 * MIB), "/m")
    assert (map_losses(result)["thin-no-passdown"], result.reached_bytes) == (MIB, 0)
    assert result.rows[2].unexplained_bytes == 0
    assert predict_trim(layers).outlook is Outlook.NOTHING


def test_discards_failed_by_a_scsi_disk_are_explained() -> None:
    sda = make_layer("sda", "8:0", provisioning_mode="unmap")
    flows = [make_extent_flow("8:0", MIB), make_flow(Stage.BIO, "8:0", MIB, disk="sda")]
    flows += [make_flow(stage, "8:0", MIB, disk="sda", status=5) for stage in (Stage.ISSUED, Stage.DONE)]
    result = build_audit(make_evidence(make_stack(sda), flows, MIB), "/m")
    assert (map_losses(result), result.unexplained_bytes) == ({"scsi-refused": MIB}, 0)


def test_discards_refused_before_a_request_are_explained() -> None:
    """After the first failed command the kernel sends no more; the rest of the same bio completes as one
    part."""
    sda = make_layer("sda", "8:0", provisioning_mode="disabled")
    flows = [make_extent_flow("8:0", 4 * MIB), make_flow(Stage.BIO, "8:0", 4 * MIB, disk="sda")]
    flows += [make_flow(Stage.ISSUED, "8:0", 3 * MIB, disk="sda")]
    flows += [make_flow(Stage.DONE, "8:0", 3 * MIB, disk="sda", status=5)]
    flows += [make_flow(Stage.BIO_DONE, "8:0", MIB, disk="sda", status=1)]
    result = build_audit(make_evidence(make_stack(sda), flows, 4 * MIB), "/m")
    assert (result.verdict, result.unexplained_bytes) == (Verdict.REJECTED, 0)
    assert [why.lost_bytes for row in result.rows for why in row.reasons] == [MIB, 3 * MIB]


@pytest.mark.parametrize(
    ("words", "begin", "is_lost"),
    [
        ("writecache s 253:1 8:16 4096 0", 7, True),
        ("writecache s 253:1 8:16 4096 0", 8, False),
        ("writecache s 253:1 8:16 512 0", 7, False),
        ("integrity 253:1 0 4 D 2 block_size:4096 allow_discards", 7, True),
        ("integrity 253:1 0 4 D 2 internal_hash:crc32c allow_discards", 7, False),
        ("era 8:16 253:1 128", 7, False),
    ],
)
def test_blocks_containing_granule_starts_are_found(words: str, begin: int, is_lost: bool) -> None:
    """The first piece of a long discard ends at a granule of the lower device, inside a block."""
    kind, *arguments = words.split()
    top = make_layer("dm-0", "253:0", Kind.DM, "dm-1", target=kind)
    top = replace(top, table=(DmTarget(0, 1 << 21, kind, tuple(arguments)),))
    shifted = make_layer("dm-1", "253:1", Kind.DM, "sda", target="linear")
    shifted = replace(shifted, table=(DmTarget(0, 1 << 21, "linear", ("8:0", str(begin))),))
    layers = make_stack(top, shifted, replace(DISK, limits=replace(DISK.limits, granularity=4096)))
    flows = [make_extent_flow("253:0", 4 * MIB), make_flow(Stage.BIO, "253:0", 4 * MIB, disk="dm-0")]
    flows += [make_flow(Stage.BIO_DONE, "253:0", 3 * MIB, disk="dm-0", status=10)]
    flows += [make_flow(Stage.BIO_DONE, "253:0", MIB, disk="dm-0")]
    flows += [make_flow(Stage.BIO, "253:1", MIB, disk="dm-1"), *make_disk_flows("sda", "8:0", MIB)]
    assert map_losses(build_audit(make_evidence(layers, flows, 0), "/m")).get("block-cut") == (
        3 * MIB if is_lost else None
    )
    foretold = predict_trim(layers)
    assert ("block-cut" in {why.code for why in foretold.reasons}) == is_lost
    assert (foretold.outlook is Outlook.UNKNOWN) == is_lost
