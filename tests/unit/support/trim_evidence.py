"""Evidence of an audit written as code: stacks, flows, and traces in the format of the kernel's event log."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from opwatch.trim.audit.audit import Asked, AuditEvidence, ReadBack
from opwatch.trim.audit.fitrim import FitrimAnswer
from opwatch.trim.audit.flow import Amount, Flow, SenderKind, Stage, Trace
from opwatch.trim.layers.arrays import DmRaidFacts
from opwatch.trim.layers.kinds import BY_KIND
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack.facts import LayerFacts
from opwatch.trim.stack.layers import Filesystem, Kind, Layer, Stack
from opwatch.trim.stack.limits import QueueLimits
from opwatch.trim.stale.sentinel import ReadsAs

GRANULE = 4096
Said = str | int | bool | tuple[str, ...]


def make_facts(kind: Kind, **facts: Said) -> LayerFacts:
    """Return the facts of a layer's kind; for device mapper with a level, the RAID facts."""
    is_raid = kind is Kind.DM and "level" in facts
    of_kind = DmRaidFacts if is_raid else BY_KIND[kind].facts
    return of_kind(**facts)  # type: ignore[arg-type]


def make_layer(
    device: str,
    dev: str,
    kind: Kind = Kind.DISK,
    *below: str,
    max_bytes: int = 1 << 31,
    granularity: int = GRANULE,
    target: str | None = None,
    label: str | None = None,
    **facts: Said,
) -> Layer:
    limits = QueueLimits(granularity, 0, max_bytes, max_bytes, 1)
    return Layer(
        device,
        dev,
        kind,
        1 << 30,
        limits,
        target=target,
        label=label,
        below=tuple(below),
        facts=make_facts(kind, **facts),
    )


def make_stack(
    *layers: Layer, kind: str = "ext4", tops: Sequence[str] | None = None, options: tuple[str, ...] = ()
) -> Stack:
    names = tuple(tops) if tops else (layers[0].device,)
    return Stack(Filesystem("/m", kind, "/dev/x", layers[0].dev, options, names), layers)


def make_flow(
    stage: Stage,
    dev: str,
    n_bytes: int,
    *,
    disk: str = "",
    count: int = 1,
    status: int = 0,
    who: SenderKind = SenderKind.FOLLOWED,
    op: str = "discard",
    whole: int | None = None,
) -> Flow:
    amount = Amount(count, n_bytes, count, n_bytes if whole is None else whole)
    return Flow(disk, dev, stage, op, who, status, amount)


def make_disk_flows(
    disk: str, dev: str, n_bytes: int, whole: int | None = None, who: SenderKind = SenderKind.FOLLOWED
) -> list[Flow]:
    """Return the flows of a disk without faults."""
    return [
        make_flow(stage, dev, n_bytes, disk=disk, whole=whole, who=who)
        for stage in (Stage.BIO, Stage.ISSUED, Stage.DONE)
    ]


def make_extent_flow(dev: str, n_bytes: int, count: int = 1) -> Flow:
    return make_flow(Stage.FS_EXTENT, dev, n_bytes, count=count)


def make_evidence(
    before: Stack,
    flows: Iterable[Flow],
    claimed: int | None,
    *,
    error: int = 0,
    after: Stack | None = None,
    absent: Iterable[str] = (),
    stats: Mapping[str, tuple[int, int]] | None = None,
    read_back: ReadBack | None = None,
    interrupted: bool = False,
) -> AuditEvidence:
    trace = Trace(tuple(flows), absent=frozenset(absent), stats=stats or {})
    answer = FitrimAnswer(claimed, error, interrupted)
    return AuditEvidence(before, after or before, trace, Asked(), answer, True, read_back)


def make_read_back(
    by_device: Mapping[str, Mapping[ReadsAs, int]], maps: Mapping[str, SentinelMap] | None = None
) -> ReadBack:
    """Return the sentinels read back on these devices."""
    total: Counter[ReadsAs] = Counter()
    for amounts in by_device.values():
        total.update(amounts)
    return ReadBack(dict(total), maps=maps or {}, by_device=by_device)


def with_facts(one: Stack, device: str, **facts: Said) -> Stack:
    """Return the stack with changed facts of one layer."""
    layer = one.find_layer(device)
    assert layer
    changed = replace(layer, facts=replace(layer.facts, **facts))  # type: ignore[arg-type]
    layers = [changed if other is layer else other for other in one.layers]
    return Stack(one.filesystem, tuple(layers))


def with_limit(one: Stack, device: str, max_bytes: int) -> Stack:
    """Return the stack after a driver has dropped both limits of one layer to this value."""
    layers = [
        replace(part, limits=replace(part.limits, max_bytes=max_bytes, max_hw_bytes=max_bytes))
        if part.device == device
        else part
        for part in one.layers
    ]
    return Stack(one.filesystem, tuple(layers))


_EVENT = re.compile(r"^\s*(\S+?)-\d+\s+[\d.]+: (\w+): (.*)$")
_BLOCK = re.compile(r"(\d+),(\d+) (D\w*) .*?(\d+) \+ (\d+)(?: .*?\[(-?\d+)\])?")
_EXTENT = re.compile(r"dev (\d+)[,:](\d+) .*(?:len|fsbcount) (\w+)$")
_STAGES = {
    "block_bio_queue": Stage.BIO,
    "block_rq_issue": Stage.ISSUED,
    "block_rq_complete": Stage.DONE,
    "ext4_trim_extent": Stage.FS_EXTENT,
    "xfs_discard_extent": Stage.FS_EXTENT,
}
_STATUS = {0: 0, -95: 1, -121: 5, -5: 10}


def parse_flows(text: str, disks: Mapping[str, str], block_bytes: int) -> list[Flow]:
    """Return a log of events as the flows that the programs would count."""
    amounts: defaultdict[tuple[Stage, str, int], Amount] = defaultdict(Amount)
    for line in text.splitlines():
        event = _EVENT.match(line)
        if not event or event[2] not in _STAGES:
            continue
        stage, rest = _STAGES[event[2]], event[3]
        if stage is Stage.FS_EXTENT:
            parts = _EXTENT.match(rest)
            assert parts, rest
            n_bytes, status = int(parts[3], 0) * block_bytes, 0
        else:
            parts = _BLOCK.match(rest)
            assert parts, rest
            n_bytes, status = int(parts[5]) * 512, _STATUS[int(parts[6] or 0)]
        key = stage, f"{parts[1]}:{parts[2]}", status
        amounts[key] = amounts[key].plus(Amount(1, n_bytes, 1, n_bytes))
    return [
        Flow(
            "" if stage is Stage.FS_EXTENT else disks[dev],
            dev,
            stage,
            "discard",
            SenderKind.FOLLOWED,
            status,
            amount,
        )
        for (stage, dev, status), amount in amounts.items()
    ]
