"""Reasons that the ledger reports besides bytes; every cause of the catalogue is implemented."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import opwatch.trim
from opwatch.trim.audit.audit import Verdict
from opwatch.trim.audit.flow import Origin, SenderKind, Stage
from opwatch.trim.audit.ledger import build_audit
from opwatch.trim.stack.causes import load_causes
from opwatch.trim.stack.layers import Layer
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_stack,
)

MIB = 1 << 20
ATA_LIMIT = 65_535 * 64 * 512


def make_disk() -> Layer:
    return make_layer("sda", "8:0")


def test_causes_of_the_catalogue_are_in_the_code() -> None:
    core = Path(opwatch.trim.__file__).parent
    code = "".join(
        path.read_text() for folder in (core, core.parents[1] / "tools") for path in folder.rglob("*.py")
    )
    silent = {cause.code for cause in load_causes().values() if f'"{cause.code}"' not in code}
    assert silent == {cause.code for cause in load_causes().values() if not cause.seen_by}


def test_busy_xfs_extents_are_reported() -> None:
    flows = [
        make_extent_flow("8:0", 5 * MIB),
        make_flow(Stage.FS_BUSY, "8:0", 2 * MIB),
        *make_disk_flows("sda", "8:0", 5 * MIB),
    ]
    result = build_audit(make_evidence(make_stack(make_disk(), kind="xfs"), flows, 7 * MIB), "/m")
    [row, *_] = result.rows
    assert [(reason.code, reason.lost_bytes) for reason in row.reasons] == [("xfs-busy", 2 * MIB)]
    assert (row.bytes_in, row.bytes_out, result.unexplained_bytes) == (7 * MIB, 5 * MIB, 0)


def test_refusing_nvme_drive_is_a_reason() -> None:
    flows = [
        make_extent_flow("259:0", 5 * MIB),
        make_flow(Stage.BIO, "259:0", 5 * MIB, disk="nvme0n1"),
        make_flow(Stage.ISSUED, "259:0", 5 * MIB, disk="nvme0n1"),
        make_flow(Stage.DONE, "259:0", 5 * MIB, disk="nvme0n1", status=1),
    ]
    result = build_audit(make_evidence(make_stack(make_layer("nvme0n1", "259:0")), flows, 5 * MIB), "/m")
    assert (result.verdict, result.unexplained_bytes) == (Verdict.REJECTED, 0)
    [reason] = result.rows[1].reasons
    assert (reason.code, reason.lost_bytes) == ("nvme-refused", 5 * MIB)


def test_discards_longer_than_an_ata_command_are_split() -> None:
    longer = 3 * ATA_LIMIT
    flows = [
        make_extent_flow("8:0", longer),
        make_flow(Stage.SPLIT, "8:0", 2 * ATA_LIMIT, disk="sda", count=2),
        *make_disk_flows("sda", "8:0", longer),
    ]
    one = make_layer("sda", "8:0", max_bytes=ATA_LIMIT, ata_trim="unqueued")
    result = build_audit(make_evidence(make_stack(one), flows, longer), "/m")
    assert (result.verdict, [why.code for why in result.rows[1].reasons]) == (
        Verdict.ACCEPTED,
        ["ata-splits"],
    )
    lowered = make_layer("sda", "8:0", max_bytes=MIB, ata_trim="unqueued")
    assert build_audit(make_evidence(make_stack(lowered), flows, longer), "/m").rows[1].reasons == ()


def test_concurrent_trims_of_other_processes_are_a_reason() -> None:
    before = make_evidence(
        make_stack(make_disk()), [make_extent_flow("8:0", MIB), *make_disk_flows("sda", "8:0", MIB)], MIB
    )
    other = Origin("sda", "8:0", "blkdiscard", 7, "discard", SenderKind.OTHER, 2, 4096, 2048, 2048, 0)
    result = build_audit(replace(before, trace=replace(before.trace, origins=(other,))), "/m")
    assert [(reason.code, reason.where) for reason in result.reasons] == [
        ("advisory", "sda"),
        ("others-write", "sda"),
    ]
    assert (result.verdict, result.reached_bytes) == (Verdict.ACCEPTED, MIB)
    assert [note for note in result.notes if re.search(r"4096 B .* sda \(8:0\) .*\bblkdiscard\b", note)]
