"""Python view of the discard programs' counters (bpf/abi/discard.h). Pure.

tests/kernel/discards/test_abi.py compares every name and offset here with the BTF of the built object.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.trace.ops import OPS

_FLOW = struct.Struct("=16sQI4B6Q")
_ORIGIN = struct.Struct("=16s16s2QIBB2x5Q")


class Stage(enum.IntEnum):
    """enum ow_stage."""

    FS_EXTENT = 0
    FS_SMALL = 1
    FS_BUSY = 2
    FS_QUEUED = 3
    FS_GROUP = 4
    REQUESTED = 5
    SUBMITTED = 6
    BIO = 7
    REMAPPED = 8
    SPLIT = 9
    MERGED = 10
    ISSUED = 11
    REQUEUED = 12
    COMMAND = 13
    DONE = 14
    BIO_DONE = 15
    FITRIM = 16
    BEHIND = 17
    ATA_COMMAND = 18
    ATA_DONE = 19
    BIO_REPEATED = 20
    FS_OUTSIDE = 21
    REMAPPED_FROM = 22


class SenderKind(enum.IntEnum):
    """enum ow_sender."""

    FOLLOWED = 0
    KERNEL = 1
    OTHER = 2


@dataclass(frozen=True, slots=True)
class Amount:
    """struct ow_flow, absolute since the programs were attached."""

    count: int = 0
    bytes: int = 0
    ranges: int = 0
    granule_bytes: int = 0
    sum_ns: int = 0
    max_ns: int = 0

    def plus(self, other: Amount) -> Amount:
        return Amount(
            self.count + other.count,
            self.bytes + other.bytes,
            self.ranges + other.ranges,
            self.granule_bytes + other.granule_bytes,
            self.sum_ns + other.sum_ns,
            max(self.max_ns, other.max_ns),
        )


@dataclass(frozen=True, slots=True)
class Flow:
    """Discards with the same operation, status, stage and device. `disk` is empty for filesystem events, and
    the caller's name for Stage.FITRIM. `dev` is major:minor of the target partition or disk, or of the
    filesystem; for Stage.REMAPPED_FROM, `dev` passed the discards on to `disk`."""

    disk: str
    dev: str
    stage: Stage
    op: str
    who: SenderKind
    status: int
    amount: Amount


@dataclass(frozen=True, slots=True)
class Origin:
    """A sender of discards to one device. `min_bytes` and `max_bytes` are bio sizes; `below_granule` counts
    bios without a whole granule."""

    disk: str
    dev: str
    comm: str
    cgroup: int
    op: str
    who: SenderKind
    count: int
    bytes: int
    min_bytes: int
    max_bytes: int
    below_granule: int

    @property
    def key(self) -> tuple[str, str, str, int, str, SenderKind]:
        return self.disk, self.dev, self.comm, self.cgroup, self.op, self.who


def _decode_name(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def _format_dev(number: int) -> str:
    return f"{number >> 20}:{number & 0xFFFFF}"


def _is_known(diskseq: int, diskseqs: Collection[int] | None) -> bool:
    return diskseqs is None or not diskseq or diskseq in diskseqs


def decode_flows(raw: bytes, diskseqs: Collection[int] | None = None) -> list[Flow]:
    """Decode pairs of struct ow_flow_key and struct ow_flow; raise BadInput if the data is truncated.

    Leave out disks with other sequence numbers than `diskseqs`: they may have the name and device number of a
    disk that was removed. With None, return all flows.
    """
    if len(raw) % _FLOW.size:
        raise BadInput(f"{len(raw)} bytes are not a multiple of a flow's {_FLOW.size}")
    return [
        Flow(
            disk=_decode_name(disk),
            dev=_format_dev(dev),
            stage=Stage(stage),
            op=OPS[op],
            who=SenderKind(who),
            status=status,
            amount=Amount(*amount),
        )
        for disk, diskseq, dev, stage, op, who, status, *amount in _FLOW.iter_unpack(raw)
        if _is_known(diskseq, diskseqs)
    ]


def decode_origins(raw: bytes, diskseqs: Collection[int] | None = None) -> list[Origin]:
    """Decode pairs of struct ow_origin_key and struct ow_origin; raise BadInput if the data is truncated.

    `diskseqs` is as in decode_flows().
    """
    if len(raw) % _ORIGIN.size:
        raise BadInput(f"{len(raw)} bytes are not a multiple of an origin's {_ORIGIN.size}")
    return [
        Origin(
            _decode_name(disk),
            _format_dev(dev),
            _decode_name(comm),
            cgroup,
            OPS[op],
            SenderKind(who),
            *numbers,
        )
        for disk, comm, cgroup, diskseq, dev, op, who, *numbers in _ORIGIN.iter_unpack(raw)
        if _is_known(diskseq, diskseqs)
    ]


class DiscardLoss(NamedTuple):
    """struct ow_discard_loss."""

    flows_full: int = 0
    origins_full: int = 0
    bios_full: int = 0
    ranges_over: int = 0
    unmatched: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """All counters of one tracing interval. `absent` names the programs that are not attached. `stats` are
    the kernel's own (discards, bytes) per disk for the interval, failed discards included. `claims_seen` is
    True if other processes' FITRIM calls were traced."""

    flows: tuple[Flow, ...]
    origins: tuple[Origin, ...] = ()
    absent: frozenset[str] = frozenset()
    loss: DiscardLoss = field(default_factory=DiscardLoss)
    misses: int = 0
    stats: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    claims_seen: bool = False

    def select_disk(self, disk: str) -> Trace:
        """Return the trace without other disks' flows."""
        flows = tuple(flow for flow in self.flows if flow.disk == disk)
        return self if len(flows) == len(self.flows) else replace(self, flows=flows)

    def select(
        self,
        stage: Stage,
        *,
        disk: str | None = None,
        devs: Iterable[str] | None = None,
        op: str = "discard",
        who: Iterable[SenderKind] | None = None,
    ) -> Iterator[Flow]:
        """Yield the flows of a stage. `disk`, `devs` and `who` restrict the result if given."""
        wanted = None if devs is None else set(devs)
        senders = None if who is None else set(who)
        for flow in self.flows:
            if (
                flow.stage is stage
                and flow.op == op
                and (disk is None or flow.disk == disk)
                and (wanted is None or flow.dev in wanted)
                and (senders is None or flow.who in senders)
            ):
                yield flow


def sum_flows(flows: Iterable[Flow]) -> Amount:
    """Return the sum of all flows."""
    amount = Amount()
    for flow in flows:
        amount = amount.plus(flow.amount)
    return amount
