"""Send commands to an ATA drive through its disk's file descriptor, and read the answers."""

from __future__ import annotations

from opwatch.collectors.space.scsi import ScsiAnswer, send_scsi
from opwatch.errors import BadInput, PermissionMissing, Unsupported
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata.commands import AtaRegisters, decode_registers, make_identify_command
from opwatch.sweep.ata.offers import AtaFeatures, decode_identify

# The drive rejected the command in its current state.
ABORTED = 0x04
_IDENTIFY_BYTES = 512
# A drive may save a setting before it answers.
_TIMEOUT_MS = 30_000


class AtaLine:
    """Command path to an open drive.

    Raises Unsupported if a command does not reach the drive or its answer is lost, and PermissionMissing
    without root.
    """

    def __init__(self, descriptor: int, disk: BlockDevice) -> None:
        self._descriptor, self.disk = descriptor, disk

    def identify(self) -> AtaFeatures:
        answer = self._send_command(make_identify_command(), _IDENTIFY_BYTES)
        if not answer.is_good:
            raise Unsupported(
                f"{self.disk.name}: IDENTIFY DEVICE does not reach the drive ({_describe_failure(answer)})"
            )
        try:
            return decode_identify(answer.data)
        except BadInput as error:
            raise Unsupported(f"{self.disk.name}: {error}") from error

    def send_command(self, command: bytes, data: bytes = b"", timeout_ms: int = _TIMEOUT_MS) -> AtaRegisters:
        """Send a command and return the drive's registers. Waits for the answer, regardless of signals."""
        answer = self._send_command(command, 0, timeout_ms, data)
        try:
            return decode_registers(answer.sense)
        except BadInput as error:
            raise Unsupported(f"{self.disk.name}: {error} ({_describe_failure(answer)})") from error

    def _send_command(
        self, command: bytes, length: int, timeout_ms: int = _TIMEOUT_MS, data: bytes = b""
    ) -> ScsiAnswer:
        try:
            return send_scsi(self._descriptor, command, length, timeout_ms, data)
        except PermissionError as error:
            raise PermissionMissing(f"ATA commands to {self.disk.name} need root") from error
        except OSError as error:
            raise Unsupported(f"{self.disk.name} accepts no ATA commands: {error.strerror}") from error


def _describe_failure(answer: ScsiAnswer) -> str:
    return f"status {answer.status:02X}h, sense {answer.sense[:22].hex() or 'none'}"
