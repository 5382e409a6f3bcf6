"""Data types of a trim audit: the evidence, the ledger and the result."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opwatch.trim.audit.fitrim import ALL as ALL
from opwatch.trim.audit.fitrim import Asked as Asked
from opwatch.trim.audit.fitrim import FitrimAnswer as Answer
from opwatch.trim.audit.kernel_log import KernelLog

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
    """Result of an audit: how much of the trim reached the drive, and how well this is proven."""

    PROVEN = "PROVEN"
    PROVEN_PARTWAY = "PROVEN PARTWAY"
    ACCEPTED = "ACCEPTED"
    PARTIAL = "PARTIAL"
    REJECTED = "REJECTED"
    NOT_SENT = "NOT SENT"
    NOTHING_LEFT = "NOTHING LEFT"
    UNKNOWN = "UNKNOWN"


VERDICT_MEANINGS = {
    Verdict.PROVEN: "every drive reports or shows that the space is freed",
    Verdict.PROVEN_PARTWAY: "freed as far down as is visible; storage below may still hold the data",
    Verdict.ACCEPTED: "every discard completed; the drive may still keep the data",
    Verdict.PARTIAL: "part of the trim did not reach the drive",
    Verdict.REJECTED: "every discard that reached the drive failed",
    Verdict.NOT_SENT: "no discard reached the drive",
    Verdict.NOTHING_LEFT: "the filesystem had nothing left to trim",
    Verdict.UNKNOWN: "the evidence is insufficient or contradictory",
}


class RowKind(enum.Enum):
    """Subject of a ledger row. LAYER is one block device of the stack; GRANULES are the freeable bytes of a
    disk's completed discards."""

    FILESYSTEM = enum.auto()
    LAYER = enum.auto()
    GRANULES = enum.auto()


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Sentinel bytes by how they read after the trim, in total and per device (`by_device`).

    `reason` says why the sentinels prove nothing, or is None; `notes` list skipped sentinels. `count` is the
    drive's in-use count (NUSE) around the sentinels, None if the drive reports none. `maps` are the drives'
    LBA maps of the sentinels, by device."""

    bytes: Mapping[ReadsAs, int]
    reason: str | None = None
    notes: tuple[str, ...] = ()
    count: Count | None = None
    maps: Mapping[str, SentinelMap] = field(default_factory=dict)
    by_device: Mapping[str, Mapping[ReadsAs, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """A drive's in-use bytes (NVMe NUSE) before and after the trim. `written` are the bytes written during
    the trim, None if the kernel keeps no statistics for the drive."""

    before: int
    after: int
    written: int | None = 0


@dataclass(frozen=True, slots=True)
class BackingFile:
    """Bytes unmapped by a trim from a loop device's backing file: the file's own blocks, and blocks shared
    with other files, which stay allocated."""

    own_bytes: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class AuditEvidence:
    """All inputs of the ledger. `answer` is None in watch mode, when only other processes trim. `accounts`
    are the drives' own counters. `files` are the visible backing files, by loop device."""

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


@dataclass(frozen=True, slots=True)
class Row:
    """A ledger line. `layer` is the display name. Unknown amounts are None, and `unknown` says why.

    `bytes_in` arrived at the layer, `bytes_out` were passed to the next layer and `bytes_ok` completed
    without an error. `unexplained_bytes` were lost here without a known cause. `commands` are the commands
    issued by a disk's driver."""

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


class ProofLevel(enum.StrEnum):
    """Strength of the proof for a disk with completed discards, weakest first."""

    CONTRADICTED = "contradicted"
    ACCEPTED = "accepted"
    PARTWAY = "proven partway"
    PROVEN = "proven"


@dataclass(frozen=True, slots=True)
class LeafProof:
    """The proof for a disk. `by` describes the evidence, `down_to` names the lowest proven layer, and
    `beyond` says what remains unknown below. `gone_bytes` and `kept_bytes` count sentinel bytes, from the
    disk's strongest evidence."""

    device: str
    standing: ProofLevel
    by: tuple[str, ...] = ()
    down_to: str | None = None
    beyond: str | None = None
    gone_bytes: int = 0
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """The result for a filesystem or device. `claims` are other processes' FITRIM results (watch mode
    only); `counters` are the judged drive counters; `proofs` has an entry per disk with completed
    discards."""

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
