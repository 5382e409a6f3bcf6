"""Claims of other processes' FITRIM calls, and drivers' commands, from the programs' counts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from opwatch.sinks.trim_audit import build_audit_document, format_audit
from opwatch.trim.audit.audit import AuditEvidence, Verdict
from opwatch.trim.audit.claims import Claim
from opwatch.trim.audit.commands import list_commands
from opwatch.trim.audit.flow import Flow, SenderKind, Stage, Trace
from opwatch.trim.audit.ledger import build_audit
from opwatch.trim.stack.layers import Stack
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_extent_flow,
    make_flow,
    make_layer,
    make_stack,
)

MIB = 1 << 20
DISK = make_layer("sda", "8:0")


def make_claim(comm: str, n_bytes: int, dev: str = "8:0", *, status: int = 0, count: int = 1) -> Flow:
    return make_flow(Stage.FITRIM, dev, n_bytes, disk=comm, status=status, count=count, who=SenderKind.OTHER)


def make_watched_evidence(*claims: Flow, on: Stack | None = None, whole: bool = True) -> AuditEvidence:
    flows = [
        make_extent_flow("8:0", 60 * MIB),
        *make_disk_flows("sda", "8:0", 60 * MIB, who=SenderKind.OTHER),
        *claims,
    ]
    layers = on or make_stack(DISK)
    return AuditEvidence(layers, layers, Trace(tuple(flows), claims_seen=whole))


def test_claims_are_shown_beside_reached_bytes() -> None:
    result = build_audit(make_watched_evidence(make_claim("fstrim", 60 * MIB)), "/m")
    assert result.verdict is Verdict.ACCEPTED
    assert result.claimed_bytes == result.reached_bytes == 60 * MIB
    assert result.claims == (Claim("fstrim", "8:0", 1, 60 * MIB),)
    assert build_audit_document(result)["claims"][0]["comm"] == "fstrim"
    assert any(re.search(rf"\b{60 * MIB} B .*\bfstrim\b", line) for line in format_audit(result))


def test_claims_are_grouped_by_caller_and_result() -> None:
    result = build_audit(
        make_watched_evidence(
            make_claim("fstrim", 40 * MIB, count=2),
            make_claim("agent", 5 * MIB),
            make_claim("agent", 0, status=95),
            make_claim("agent", 0, status=254),
            make_claim("agent", 0, status=255, count=3),
        ),
        "/m",
    )
    assert result.claimed_bytes == 45 * MIB
    assert [(claim.comm, claim.calls, claim.claimed_bytes, claim.error) for claim in result.claims] == [
        ("fstrim", 2, 40 * MIB, None),
        ("agent", 1, 5 * MIB, None),
        ("agent", 1, None, "ENOTSUP"),
        ("agent", 1, None, "ended by a signal"),
        ("agent", 3, None, "unreadable result"),
    ]
    assert re.search(r"\bENOTSUP\b.*\bagent\b", result.claim)


def test_claims_on_other_filesystems_are_not_shown() -> None:
    result = build_audit(make_watched_evidence(make_claim("fstrim", 9 * MIB, "8:16")), "/m")
    assert (result.claims, result.claimed_bytes) == ((), None)
    assert result.claim.startswith("nothing: ")


def test_device_has_the_claims_of_its_filesystems() -> None:
    """Bios of the partitions show which filesystems are on the disk."""
    flows = [
        *make_disk_flows("sda", "8:1", 60 * MIB, who=SenderKind.OTHER),
        make_claim("fstrim", MIB, "8:1"),
        make_claim("x", MIB, "8:17"),
    ]
    bare = Stack(None, (DISK,))
    result = build_audit(AuditEvidence(bare, bare, Trace(tuple(flows), claims_seen=True)), "sda")
    assert [claim.comm for claim in result.claims] == ["fstrim"]


def test_claim_reports_calls_that_cannot_be_followed() -> None:
    assert build_audit(make_watched_evidence(whole=False), "/m").claim.startswith("unknown: ")


def test_xfs_also_claims_too_much_for_other_callers() -> None:
    result = build_audit(
        make_watched_evidence(make_claim("fstrim", 1 << 30), on=make_stack(DISK, kind="xfs")), "/m"
    )
    assert "6.11" in result.claim


def list_sent_commands(*flows: Flow) -> list[str]:
    return [str(command) for command in list_commands(Trace(flows), "sda")]


def test_ata_commands_have_their_names() -> None:
    def make_command(stage: Stage, opcode: int, count: int) -> Flow:
        return make_flow(stage, "8:0", MIB, disk="sda", status=opcode, count=count, who=SenderKind.OTHER)

    nvme = make_command(Stage.COMMAND, 9, 3)
    nvme = replace(nvme, amount=replace(nvme.amount, ranges=40))
    assert list_sent_commands(nvme) == ["3 x NVMe Dataset Management, 40 ranges"]
    unmap = replace(make_command(Stage.COMMAND, 0x42, 2), amount=replace(nvme.amount, count=2, ranges=0))
    assert list_sent_commands(unmap) == ["2 x SCSI UNMAP"]
    sata = [
        replace(make_command(Stage.COMMAND, 0x93, 5), amount=replace(nvme.amount, count=5, ranges=0)),
        make_command(Stage.ATA_COMMAND, 6, 5),
        make_command(Stage.ATA_DONE, 0, 4),
        make_command(Stage.ATA_DONE, 1, 1),
    ]
    same, management = list_sent_commands(*sata)
    assert same == "5 x SCSI WRITE SAME(16)"
    assert re.match(r"5 x ATA DATA SET MANAGEMENT, 5 \w+, 1 ", management)
    assert list_sent_commands(make_command(Stage.COMMAND, 0xFE, 1)) == ["1 x command FEh, 1 ranges"]


@pytest.mark.parametrize("disk", ["sdb", ""])
def test_commands_of_other_disks_are_not_reported(disk: str) -> None:
    assert list_sent_commands(make_flow(Stage.COMMAND, "8:16", MIB, disk=disk, status=9)) == []
