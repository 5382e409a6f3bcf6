"""Raw data of one poll of a drive: its answers as bytes, between two readings of the kernel's counters.

Counters, their proof and write amplification are computed from these data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from opwatch.counters.reading import DriveFacts
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported


class RefusalKind(StrEnum):
    """Kind of error behind a refusal, as far as the exit status depends on it."""

    PERMISSION = "permission"
    UNSUPPORTED = "unsupported"
    OTHER = "other"


_ERRORS = {
    RefusalKind.PERMISSION: PermissionMissing,
    RefusalKind.UNSUPPORTED: Unsupported,
    RefusalKind.OTHER: OpwatchError,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason for a failed read."""

    kind: RefusalKind
    text: str

    def to_error(self) -> OpwatchError:
        """Return the original kind of error."""
        return _ERRORS[self.kind](self.text)


def make_refusal(error: OpwatchError) -> Refusal:
    """Convert an error to a value."""
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


@dataclass(frozen=True, slots=True)
class NvmeCommand:
    """Read command. `number` is a log page or an Identify structure (CNS); `part` is the log specific
    identifier or the namespace."""

    kind: CommandKind
    number: int
    part: int = 0
    uuid_index: int = 0


@dataclass(frozen=True, slots=True)
class DriveAnswer:
    """Bytes returned by the drive, or the reason for a failure."""

    command: NvmeCommand
    answer: bytes | Refusal


@dataclass(frozen=True, slots=True)
class SmartctlOutput:
    """Output and exit status of smartctl."""

    status: int
    text: bytes


@dataclass(frozen=True, slots=True)
class FirmwareSample:
    """One poll of the drive behind `disk`.

    `drive` holds the facts from sysfs. `counted_on` names the devices that count the host's writes, by name,
    registration and diskseq; if they change, the counts restart.

    `before` and `after` are bytes that the kernel wrote since boot, or None if unknown. `flying` is the
    maximum number of bytes in flight at the end. `parts` is the kernel's count per device. A drive that was
    polled has `answers` or smartctl's output; otherwise `refused` gives the reason.
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
