"""What was really read at one look at a drive: its answers as bytes, between two readings of the kernel's
count. Counters, their proof and write amplification follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from opwatch.counters.reading import DriveFacts
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.frozen import field, frozen


class RefusalKind(StrEnum):
    """Which error a refusal was, as far as that decides an exit status."""

    PERMISSION = "permission"
    UNSUPPORTED = "unsupported"
    OTHER = "other"


_ERRORS = {
    RefusalKind.PERMISSION: PermissionMissing,
    RefusalKind.UNSUPPORTED: Unsupported,
    RefusalKind.OTHER: OpwatchError,
}


@frozen
class Refusal:
    """Why something was not read."""

    kind: RefusalKind
    text: str

    def error(self) -> OpwatchError:
        """The error that it was."""
        return _ERRORS[self.kind](self.text)


def refusal_of(error: OpwatchError) -> Refusal:
    """An error as a value."""
    kind = RefusalKind.OTHER
    if isinstance(error, PermissionMissing):
        kind = RefusalKind.PERMISSION
    elif isinstance(error, Unsupported):
        kind = RefusalKind.UNSUPPORTED
    return Refusal(kind, str(error))


class CommandKind(StrEnum):
    """The two admin commands that read counters and facts."""

    LOG = "log"
    IDENTIFY = "identify"


@frozen
class NvmeCommand:
    """A command that reads. `number` is a log page's or that of an Identify structure (CNS); `part`, the log
    specific identifier or the namespace."""

    kind: CommandKind
    number: int
    part: int = 0
    uuid_index: int = 0


@frozen
class DriveAnswer:
    """A structure as the drive gave it, or why it did not."""

    command: NvmeCommand
    answer: bytes | Refusal


@frozen
class SmartctlOutput:
    """What smartctl printed, and its exit status."""

    status: int
    text: bytes


@frozen
class FirmwareSample:
    """One look at the drive behind `disk`. `drive` is what sysfs says of it; `counted_on`, which devices
    its host's writes are counted on, by name, registration and diskseq: with others the counts begin anew.

    `before` and `after` are bytes that the kernel wrote since boot, None where it does not tell; `flying`,
    what writes under way at the end may carry; `parts`, the kernel's count by device. Of a drive that was
    asked there are `answers` or smartctl's output; of one that was not, `refused` says why.
    """

    disk: str
    drive: DriveFacts
    begin_ns: int
    end_ns: int
    before: int | None
    after: int | None
    flying: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)
    counted_on: tuple[str, ...] = ()
    nsid: int = 1
    answers: tuple[DriveAnswer, ...] = ()
    smartctl: SmartctlOutput | None = None
    refused: Refusal | None = None
