"""What an audit knows and what it says: the question, the answer, the ledger, the verdict."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from opwatch.frozen import field, frozen
from opwatch.trim.audit.kernel_log import KernelLog
from opwatch.trim.audit.question import ALL as ALL
from opwatch.trim.audit.question import Asked as Asked
from opwatch.trim.audit.question import FitrimAnswer as Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from opwatch.trim.audit.accounts import Account, JudgedAccount
    from opwatch.trim.audit.claims import Claim
    from opwatch.trim.audit.commands import SentCommand
    from opwatch.trim.audit.flow import Trace
    from opwatch.trim.space.lba_status import SentinelMap
    from opwatch.trim.stack.causes import Reason
    from opwatch.trim.stack.layers import FactChange, Stack
    from opwatch.trim.stale.sentinel import ReadsAs
    from opwatch.trim.stale.stale import Count


class Verdict(enum.StrEnum):
    """Whether the trim reached the drive."""

    PROVEN = "PROVEN"
    PROVEN_PARTWAY = "PROVEN PARTWAY"
    ACCEPTED = "ACCEPTED"
    PARTIAL = "PARTIAL"
    REJECTED = "REJECTED"
    NOT_SENT = "NOT SENT"
    NOTHING_LEFT = "NOTHING LEFT"
    UNKNOWN = "UNKNOWN"


MEANING = {
    Verdict.PROVEN: "each drive gives it as gone, or counts it as trimmed",
    Verdict.PROVEN_PARTWAY: "gone as far down as can be seen; something below may still hold it",
    Verdict.ACCEPTED: "every discard completed; the drive may still keep the data",
    Verdict.PARTIAL: "a part of it did not reach the drive",
    Verdict.REJECTED: "every discard that reached the drive failed",
    Verdict.NOT_SENT: "no discard reached the drive",
    Verdict.NOTHING_LEFT: "the filesystem had nothing left to trim",
    Verdict.UNKNOWN: "what was seen allows no verdict, or contradicts itself",
}


class RowKind(enum.Enum):
    """What a row of the ledger is about: LAYER is one block device of the stack, GRANULES what a disk can
    free of the discards that it completed."""

    FILESYSTEM = enum.auto()
    LAYER = enum.auto()
    GRANULES = enum.auto()


@frozen
class ReadBack:
    """What became of sentinels, in bytes by how they read; `by_device` where they were read.
    `reason` says why nothing could be proven, None when it could; `notes` what was left out. `count`: what
    the drive itself counts around the sentinels, None where it does not tell; `maps`: what the maps of drives
    have of them, by device."""

    bytes: Mapping[ReadsAs, int]
    reason: str | None = None
    notes: tuple[str, ...] = ()
    count: Count | None = None
    maps: Mapping[str, SentinelMap] = field(default_factory=dict)
    by_device: Mapping[str, Mapping[ReadsAs, int]] = field(default_factory=dict)


@frozen
class Held:
    """How many bytes a drive counts as in use, by its own count (NVMe NUSE), before and after; `written` were
    written to it meanwhile, None where the kernel keeps no statistics of it."""

    before: int
    after: int
    written: int | None = 0


@frozen
class BackingFile:
    """What a trim took off the file behind a loop device: blocks that were its own, and blocks that other
    files have as well, which their filesystem keeps."""

    own_bytes: int
    shared_bytes: int


@frozen
class AuditEvidence:
    """All that the ledger is made of. `answer` is None when others trimmed and we watched; `accounts`: what
    drives count by themselves; `files`: those behind loop devices, where they can be seen."""

    before: Stack
    after: Stack
    trace: Trace
    asked: Asked | None = None
    answer: Answer | None = None
    settled: bool = True
    read_back: ReadBack | None = None
    log: KernelLog = field(default_factory=KernelLog)
    in_use: Mapping[str, Held] = field(default_factory=dict)
    accounts: tuple[Account, ...] = ()
    files: Mapping[str, BackingFile] = field(default_factory=dict)


@frozen
class Row:
    """One line; `layer` is what it is called. None where nobody can tell, with the reason in `unknown`.

    `bytes_in` were given to it, `bytes_out` are what it made of them for the next; `bytes_ok` ended without
    an error. `unexplained_bytes` are lost here for no reason that we know. `commands`: of a disk, what its
    driver made of the requests."""

    kind: RowKind
    layer: str
    device: str
    bytes_in: int | None
    bytes_out: int | None
    bytes_ok: int | None = None
    requests: int | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    unexplained_bytes: int = 0
    unknown: str | None = None
    note: str | None = None
    commands: tuple[SentCommand, ...] = ()


class Standing(enum.StrEnum):
    """What is known of one disk after the discards that it completed, the weakest first."""

    CONTRADICTED = "contradicted"
    ACCEPTED = "accepted"
    PARTWAY = "proven partway"
    PROVEN = "proven"


@frozen
class LeafProof:
    """What is proven of one disk, and by what (`by`). `down_to` is the last thing that it is proven of, and
    `beyond` what lies below that and is not known. Of sentinels, `gone_bytes` and `kept_bytes` by the
    strongest witness that this disk has itself."""

    device: str
    standing: Standing
    by: tuple[str, ...] = ()
    down_to: str | None = None
    beyond: str | None = None
    gone_bytes: int = 0
    kept_bytes: int = 0


@frozen
class Audit:
    """The result for one filesystem or device. `claims` are those of others, of a watch; `counters` what to
    think of each account of a drive, and `proofs` what is proven of each."""

    subject: str
    verdict: Verdict
    claimed_bytes: int | None
    claim: str
    reached_bytes: int
    rows: tuple[Row, ...]
    unexplained_bytes: int
    evidence: AuditEvidence
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    changes: tuple[FactChange, ...] = ()
    claims: tuple[Claim, ...] = ()
    counters: tuple[JudgedAccount, ...] = ()
    proofs: tuple[LeafProof, ...] = ()
