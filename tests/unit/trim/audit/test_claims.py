"""What others' calls of FITRIM claim, and what drivers were told, from the counts of the programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.sinks.trim_audit import document, lines
from opwatch.trim.audit.audit import AuditEvidence, Verdict
from opwatch.trim.audit.claims import Claim
from opwatch.trim.audit.commands import commands_of
from opwatch.trim.audit.flow import Flow, Stage, Trace, Who
from opwatch.trim.audit.ledger import audit
from opwatch.trim.stack.layers import Stack
from tests.unit.support.trim_evidence import extents, flow, layer, stack, through

MIB = 1 << 20
DISK = layer("sda", "8:0")


def fitrim(comm: str, n_bytes: int, dev: str = "8:0", *, status: int = 0, count: int = 1) -> Flow:
    return flow(Stage.FITRIM, dev, n_bytes, disk=comm, status=status, count=count, who=Who.OTHER)


def watched(*claims: Flow, on: Stack | None = None, seen: bool = True) -> AuditEvidence:
    flows = [extents("8:0", 60 * MIB), *through("sda", "8:0", 60 * MIB, who=Who.OTHER), *claims]
    found = on or stack(DISK)
    return AuditEvidence(found, found, Trace(tuple(flows), claims_seen=seen))


def test_claimed_beside_reached() -> None:
    found = audit(watched(fitrim("fstrim", 60 * MIB)), "/m")
    assert found.verdict is Verdict.ACCEPTED
    assert found.claimed_bytes == found.reached_bytes == 60 * MIB
    assert found.claims == (Claim("fstrim", "8:0", 1, 60 * MIB),)
    assert document(found)["claims"][0]["comm"] == "fstrim"
    assert any(f"{60 * MIB} B trimmed, by fstrim" in line for line in lines(found))


def test_each_caller_and_each_end_by_itself() -> None:
    found = audit(
        watched(
            fitrim("fstrim", 40 * MIB, count=2),
            fitrim("agent", 5 * MIB),
            fitrim("agent", 0, status=95),
            fitrim("agent", 0, status=254),
            fitrim("agent", 0, status=255, count=3),
        ),
        "/m",
    )
    assert found.claimed_bytes == 45 * MIB
    assert [(each.comm, each.calls, each.claimed_bytes, each.error) for each in found.claims] == [
        ("fstrim", 2, 40 * MIB, None),
        ("agent", 1, 5 * MIB, None),
        ("agent", 1, None, "ENOTSUP"),
        ("agent", 1, None, "ended by a signal"),
        ("agent", 3, None, "an answer that could not be read"),
    ]
    assert "ENOTSUP, by agent" in found.claim


def test_claims_on_other_filesystems_are_not_shown() -> None:
    found = audit(watched(fitrim("fstrim", 9 * MIB, "8:16")), "/m")
    assert (found.claims, found.claimed_bytes) == ((), None)
    assert "nobody asked" in found.claim


def test_a_device_has_the_claims_of_what_lies_on_it() -> None:
    """Its partitions' bios tell which these are."""
    flows = [
        *through("sda", "8:1", 60 * MIB, who=Who.OTHER),
        fitrim("fstrim", MIB, "8:1"),
        fitrim("x", MIB, "8:17"),
    ]
    bare = Stack(None, (DISK,))
    found = audit(AuditEvidence(bare, bare, Trace(tuple(flows), claims_seen=True)), "sda")
    assert [each.comm for each in found.claims] == ["fstrim"]


def test_what_cannot_be_seen_is_said() -> None:
    assert "cannot be followed" in audit(watched(seen=False), "/m").claim


def test_xfs_claims_too_much_for_others_as_well() -> None:
    found = audit(watched(fitrim("fstrim", 1 << 30), on=stack(DISK, kind="xfs")), "/m")
    assert "6.11" in found.claim


def told(*flows: Flow) -> list[str]:
    return [str(each) for each in commands_of(Trace(flows), "sda")]


def test_commands_have_their_names() -> None:
    def command(stage: Stage, opcode: int, count: int) -> Flow:
        return flow(stage, "8:0", MIB, disk="sda", status=opcode, count=count, who=Who.OTHER)

    nvme = command(Stage.COMMAND, 9, 3)
    nvme = replace(nvme, amount=replace(nvme.amount, ranges=40))
    assert told(nvme) == ["3 x NVMe Dataset Management, 40 ranges"]
    unmap = replace(command(Stage.COMMAND, 0x42, 2), amount=replace(nvme.amount, count=2, ranges=0))
    assert told(unmap) == ["2 x SCSI UNMAP"]
    sata = [
        replace(command(Stage.COMMAND, 0x93, 5), amount=replace(nvme.amount, count=5, ranges=0)),
        command(Stage.ATA_COMMAND, 6, 5),
        command(Stage.ATA_DONE, 0, 4),
        command(Stage.ATA_DONE, 1, 1),
    ]
    assert told(*sata) == [
        "5 x SCSI WRITE SAME(16)",
        "5 x ATA DATA SET MANAGEMENT, 5 ended, 1 of them failed",
    ]
    assert told(command(Stage.COMMAND, 0xFE, 1)) == ["1 x command FEh, 1 ranges"]


@pytest.mark.parametrize("disk", ["sdb", ""])
def test_commands_of_other_disks_are_not_told(disk: str) -> None:
    assert told(flow(Stage.COMMAND, "8:16", MIB, disk=disk, status=9)) == []
