"""Observations as rows with full histograms, one per operation and interval, for Parquet."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC
from typing import Any

from opwatch.samples.observation import Observation
from opwatch.sinks.jsonl import build_op_document
from opwatch.trace.derive import QUANTILES, Latency, OpInterval, make_idle_op
from opwatch.trace.hist import Histogram
from opwatch.trace.unavailable import TRUST
from opwatch.units import replace_unprintable

_SLOTS = "STRUCT(slot INTEGER, count BIGINT)[]"
# Signed and plain types, which every Parquet reader supports.
COLUMNS = {
    "recording": "VARCHAR",
    "device": "VARCHAR",
    "origin": "VARCHAR",
    "drive_model": "VARCHAR",
    "op": "VARCHAR",
    "time": "TIMESTAMP",
    "begin_mono_ns": "BIGINT",
    "end_mono_ns": "BIGINT",
    "interval_s": "DOUBLE",
    "requests": "BIGINT",
    "bytes": "BIGINT",
    "errors": "BIGINT",
    "issued": "BIGINT",
    "queue_depth": "DOUBLE",
    "mean_ns": "DOUBLE",
    "max_ns": "BIGINT",
    "p50_ns": "DOUBLE",
    "p90_ns": "DOUBLE",
    "p99_ns": "DOUBLE",
    "p99_9_ns": "DOUBLE",
    "latency": _SLOTS,
    "queue": _SLOTS,
    "sizes": _SLOTS,
    "waf": "DOUBLE",
    "waf_error": "DOUBLE",
    "unexplained": "BIGINT",
    "cpus": "BIGINT",
    "busy_cores": "DOUBLE",
}
# Operations with a row in every interval, even without requests.
_OPS = ("read", "write", "discard", "flush")
_IDLE = make_idle_op()


def build_rows(recording: str, model: str | None, observation: Observation) -> Iterator[dict[str, Any]]:
    """Yield the rows of an interval as dictionaries by column."""
    live, interval, absent = observation.live, observation.interval, observation.missing_fields
    shared = {
        "recording": replace_unprintable(recording),
        "device": replace_unprintable(observation.device),
        "origin": replace_unprintable(observation.origin),
        "drive_model": None if model is None else replace_unprintable(model),
        "time": f"{observation.at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}",
        "begin_mono_ns": interval.begin_ns,
        "end_mono_ns": interval.end_ns,
        "interval_s": interval.seconds,
        "waf": live.waf if live else None,
        "waf_error": live.waf_error if live else None,
        "unexplained": None if TRUST in absent else len(observation.unexplained),
        "cpus": observation.cpu.cpus if observation.cpu else None,
        "busy_cores": observation.cpu.busy_cores if observation.cpu else None,
    }
    for op in dict.fromkeys((*_OPS, *interval.ops)):
        yield {**shared, "op": op, **_build_op(interval.ops.get(op) or _IDLE, interval.seconds, absent)}


def _build_op(op: OpInterval, seconds: float, absent: Collection[str]) -> dict[str, Any]:
    document = build_op_document(op, seconds, absent)
    return {
        "requests": document["count"],
        **{name: document[name] for name in ("bytes", "errors", "issued", "queue_depth")},
        **{f"{name}_ns": document["latency_ns"][name] for name in ("mean", "max", *QUANTILES)},
        "latency": _build_slots(op.latency.histogram),
        "queue": _build_queue(op.queue),
        "sizes": _build_slots(op.sizes),
    }


def _build_queue(queue: Latency | None) -> list[dict[str, int]] | None:
    return None if queue is None else _build_slots(queue.histogram)


def _build_slots(histogram: Histogram) -> list[dict[str, int]]:
    return [{"slot": slot, "count": count} for slot, count in histogram.list_hits()]
