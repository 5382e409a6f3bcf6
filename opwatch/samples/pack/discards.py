"""What was counted of a disk's discards, as a document."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

from opwatch.fields import Fields
from opwatch.trace.ops import OPS
from opwatch.trim.audit.flow import Amount, DiscardLoss, Flow, Origin, Stage, Trace, Who
from opwatch.trim.audit.live import MOST_NAME, DiscardSample

_AMOUNTS = len(Amount.__slots__)
# Device, stage, operation, sender, status; then what was counted.
_FLOW = 5 + _AMOUNTS
_ORIGIN = 10


def discards_document(sample: DiscardSample) -> dict[str, Any]:
    """All of it. Flows and senders are of this disk alone, so that they do not name it again."""
    trace = sample.trace
    stats = trace.stats.get(sample.disk)
    return {
        "disk": sample.disk,
        "device": sample.device,
        "cgroups": [[number, name] for number, name in sample.cgroups.items()],
        "mounts": [[dev, name] for dev, name in sample.mounts.items()],
        "is_chained": sample.is_chained,
        "flows": [_flow_row(flow) for flow in trace.flows],
        "origins": [_origin_row(origin) for origin in trace.origins],
        "absent": sorted(trace.absent),
        "loss": list(trace.loss),
        "misses": trace.misses,
        "stats": None if stats is None else list(stats),
        "claims_seen": trace.claims_seen,
    }


def discards_of(fields: Fields) -> DiscardSample:
    """The sample that was written; BadInput for what is none."""
    disk = fields.text("disk")
    stats = fields.optional("stats", lambda key: _stats(fields, key))
    trace = Trace(
        flows=tuple(_flow(disk[:MOST_NAME], row, fields) for row in fields.rows("flows", _FLOW)),
        origins=tuple(_origin(disk[:MOST_NAME], row, fields) for row in fields.rows("origins", _ORIGIN)),
        absent=frozenset(fields.texts("absent")),
        loss=_loss(fields),
        misses=fields.count("misses"),
        stats={} if stats is None else {disk: stats},
        claims_seen=fields.flag("claims_seen"),
    )
    return DiscardSample(
        disk=disk,
        trace=trace,
        device=fields.optional("device", fields.text),
        cgroups={
            fields.count_of(number, "cgroups"): fields.text_of(name, "cgroups")
            for number, name in fields.rows("cgroups", 2)
        },
        mounts={
            fields.text_of(dev, "mounts"): fields.text_of(name, "mounts")
            for dev, name in fields.rows("mounts", 2)
        },
        is_chained=fields.flag("is_chained"),
    )


def _flow_row(flow: Flow) -> list[Any]:
    return [flow.dev, int(flow.stage), flow.op, int(flow.who), flow.status, *astuple(flow.amount)]


def _flow(disk: str, row: list[Any], fields: Fields) -> Flow:
    dev, stage, op, who, status, *amount = row
    return Flow(
        disk=disk,
        dev=fields.text_of(dev, "flows"),
        stage=_stage(stage, fields),
        op=_op(op, fields),
        who=_who(who, fields),
        status=fields.count_of(status, "flows"),
        amount=Amount(*(fields.count_of(value, "flows") for value in amount)),
    )


def _origin_row(origin: Origin) -> list[Any]:
    sizes = (origin.count, origin.bytes, origin.min_bytes, origin.max_bytes, origin.below_granule)
    return [origin.dev, origin.comm, origin.cgroup, origin.op, int(origin.who), *sizes]


def _origin(disk: str, row: list[Any], fields: Fields) -> Origin:
    dev, comm, cgroup, op, who, *sizes = row
    count, size, smallest, largest, below = (fields.count_of(value, "origins") for value in sizes)
    return Origin(
        disk=disk,
        dev=fields.text_of(dev, "origins"),
        comm=fields.text_of(comm, "origins"),
        cgroup=fields.count_of(cgroup, "origins"),
        op=_op(op, fields),
        who=_who(who, fields),
        count=count,
        bytes=size,
        min_bytes=smallest,
        max_bytes=largest,
        below_granule=below,
    )


def _stage(value: object, fields: Fields) -> Stage:
    number = fields.count_of(value, "stage")
    if number > max(Stage):
        raise fields.bad(f"{number} is no stage that is known")
    return Stage(number)


def _who(value: object, fields: Fields) -> Who:
    number = fields.count_of(value, "sender")
    if number > max(Who):
        raise fields.bad(f"{number} is no sender that is known")
    return Who(number)


def _op(value: object, fields: Fields) -> str:
    if value not in OPS:
        raise fields.bad(f"{value!r} is no operation that is known")
    return str(value)


def _loss(fields: Fields) -> DiscardLoss:
    counts = [fields.count_of(value, "loss") for value in fields.rows("loss")]
    if len(counts) != len(DiscardLoss._fields):
        raise fields.bad(f"loss has {len(counts)} counts, not {len(DiscardLoss._fields)}")
    return DiscardLoss(*counts)


def _stats(fields: Fields, key: str) -> tuple[int, int]:
    values = [fields.count_of(value, key) for value in fields.rows(key)]
    if len(values) != 2:
        raise fields.bad(f"{key} is no count with its bytes")
    return values[0], values[1]
