"""Count the drivers' discard commands from the drivers' tracepoints. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.trim.audit.flow import Amount, Stage, Trace, sum_flows

# Command names by stage and opcode. libata translates the SCSI commands into ATA commands.
_NAMES = {
    (Stage.COMMAND, 0x09): "NVMe Dataset Management",
    (Stage.COMMAND, 0x41): "SCSI WRITE SAME(10)",
    (Stage.COMMAND, 0x42): "SCSI UNMAP",
    (Stage.COMMAND, 0x93): "SCSI WRITE SAME(16)",
    (Stage.ATA_COMMAND, 0x06): "ATA DATA SET MANAGEMENT",
    (Stage.ATA_COMMAND, 0x64): "ATA SEND FPDMA QUEUED",
}


@dataclass(frozen=True, slots=True)
class SentCommand:
    """All commands of one kind sent to a disk, from every process. `ranges` is None if the event does not
    report ranges; `ended` and `failed` are None if no event reports completions."""

    name: str
    count: int
    bytes: int
    ranges: int | None = None
    ended: int | None = None
    failed: int | None = None

    def __str__(self) -> str:
        parts = [f"{self.count} x {self.name}"]
        if self.ranges is not None:
            parts.append(f"{self.ranges} ranges")
        if self.ended is not None:
            parts.append(f"{self.ended} completed, {self.failed} of them failed")
        return ", ".join(parts)


def list_commands(trace: Trace, disk: str) -> Iterator[SentCommand]:
    """Yield the commands sent to a disk, by stage and opcode."""
    ends = list(trace.select(Stage.ATA_DONE, disk=disk))
    failed = sum_flows(end for end in ends if end.status).count
    for stage in (Stage.COMMAND, Stage.ATA_COMMAND):
        amounts: dict[int, Amount] = {}
        for flow in trace.select(stage, disk=disk):
            amounts[flow.status] = amounts.get(flow.status, Amount()).plus(flow.amount)
        for opcode, amount in sorted(amounts.items()):
            name = _NAMES.get((stage, opcode), f"command {opcode:02X}h")
            if stage is Stage.ATA_COMMAND:
                # ATA completions carry no opcode, but a drive uses only one of the two commands.
                yield SentCommand(name, amount.count, amount.bytes, None, sum_flows(ends).count, failed)
            else:
                yield SentCommand(name, amount.count, amount.bytes, amount.ranges or None)
