"""Observations as rows with full histograms, one per operation and interval, for Parquet."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from opwatch.samples.drive_status import MAX_VALUE, DatedCounter, DriveStatus
from opwatch.samples.observation import Observation
from opwatch.sinks.jsonl import build_op_document
from opwatch.trace.derive import QUANTILES, Latency, OpInterval, make_idle_op
from opwatch.trace.hist import Histogram
from opwatch.trace.unavailable import TRUST
from opwatch.units import replace_unprintable

_SLOTS = "STRUCT(slot INTEGER, count BIGINT)[]"
_COUNTER = {
    "bytes": "BIGINT",
    "quantum_bytes": "BIGINT",
    "since": "TIMESTAMP",
    "at": "TIMESTAMP",
}
# Requests with a known time before the queue, those of them that were throttled, and the sums in ns.
_WAIT_COLUMNS = (
    *("throttle_known", "throttle_waited", "throttle_sum_ns"),
    *("admission_known", "admission_sum_ns"),
)
# Signed and plain types, which every Parquet reader supports.
COLUMNS = {
    "recording": "VARCHAR",
    "host": "VARCHAR",
    "machine_id": "VARCHAR",
    "boot_id": "VARCHAR",
    "opwatch_version": "VARCHAR",
    "device": "VARCHAR",
    "origin": "VARCHAR",
    "model": "VARCHAR",
    "serial": "VARCHAR",
    "firmware": "VARCHAR",
    "capacity_bytes": "BIGINT",
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
    **dict.fromkeys(_WAIT_COLUMNS, "BIGINT"),
    "sizes": _SLOTS,
    "whole_granule_bytes": "BIGINT",
    **{f"host_{name}": kind for name, kind in _COUNTER.items()},
    **{f"media_{name}": kind for name, kind in _COUNTER.items()},
    "used_percent": "BIGINT",
    "spare_percent": "BIGINT",
    "spare_limit_percent": "BIGINT",
    "power_on_hours": "BIGINT",
    "unexplained": "BIGINT",
    "lacks": "STRUCT(field VARCHAR, reason VARCHAR)[]",
    "cpus": "BIGINT",
    "busy_cores": "DOUBLE",
}
# The order of the rows of a file. Rows of a drive are adjacent, so their texts and counters compress well.
SORT_COLUMNS = ("model", "host", "device", "op", "time")
# Operations with a row in every interval, even without requests.
_OPS = ("read", "write", "discard", "flush")
# The operation whose rows have the drive's counters, so that no sum counts them twice.
_COUNTED_OP = "write"
_IDLE = make_idle_op()


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """Where rows are from: the file, the machine and the program. None if the recording does not have it."""

    recording: str
    host: str | None = None
    machine_id: str | None = None
    boot_id: str | None = None
    opwatch_version: str | None = None

    @property
    def shard(self) -> str:
        """Return the partition of a host: 00 to ff."""
        return compute_shard(self.host)


def read_origin(recording: str, header: Mapping[str, str | int]) -> RowOrigin:
    """Return the origin of a recording's rows, by its header."""

    def find(name: str) -> str | None:
        value = header.get(name)
        return replace_unprintable(value) if isinstance(value, str) and value else None

    version = (find("tool") or "").removeprefix("opwatch ")
    return RowOrigin(
        replace_unprintable(recording), find("host"), find("machine_id"), find("boot"), version or None
    )


def compute_shard(host: str | None) -> str:
    """Return the first byte of the SHA-256 of a host's name in hexadecimal. SQL engines compute the same."""
    return hashlib.sha256((host or "").encode()).hexdigest()[:2]


def build_rows(origin: RowOrigin, status: DriveStatus, observation: Observation) -> Iterator[dict[str, Any]]:
    """Yield the rows of an interval as dictionaries by column."""
    interval, absent = observation.interval, observation.missing_fields
    facts = status.facts
    shared = {
        "recording": origin.recording,
        "host": origin.host,
        "machine_id": origin.machine_id,
        "boot_id": origin.boot_id,
        "opwatch_version": origin.opwatch_version,
        "device": replace_unprintable(observation.device),
        "origin": replace_unprintable(observation.origin),
        "model": _clean_text(facts.model),
        "serial": _clean_text(facts.serial),
        "firmware": _clean_text(facts.firmware),
        "capacity_bytes": facts.capacity_bytes if (facts.capacity_bytes or 0) <= MAX_VALUE else None,
        "time": _format_time(observation.at),
        "begin_mono_ns": interval.begin_ns,
        "end_mono_ns": interval.end_ns,
        "interval_s": interval.seconds,
        "unexplained": None if TRUST in absent else len(observation.unexplained),
        "lacks": _build_lacks(status, absent),
        "cpus": observation.cpu.cpus if observation.cpu else None,
        "busy_cores": observation.cpu.busy_cores if observation.cpu else None,
    }
    for op in dict.fromkeys((*_OPS, *interval.ops)):
        row = {**shared, "op": op, **_build_op(interval.ops.get(op) or _IDLE, interval.seconds, absent)}
        if op == _COUNTED_OP:
            row |= _build_counters(status, observation)
        if op == "discard":
            row["whole_granule_bytes"] = _count_whole_bytes(observation)
        yield row


def _clean_text(text: str | None) -> str | None:
    return None if text is None else replace_unprintable(text.strip()) or None


def _format_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"


def _build_lacks(status: DriveStatus, absent: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the fields without a value and the reasons: of the trace, then of the drive."""
    counters = {"host_bytes": status.host.reason, "media_bytes": status.media.reason}
    reasons = {**absent, **{name: reason for name, reason in counters.items() if reason}}
    return [{"field": field, "reason": replace_unprintable(reason)} for field, reason in reasons.items()]


def _build_counters(status: DriveStatus, observation: Observation) -> dict[str, Any]:
    def format_moment(mono_ns: int | None) -> str | None:
        if mono_ns is None:
            return None
        age_ns = observation.interval.end_ns - mono_ns
        return _format_time(observation.at - timedelta(microseconds=age_ns // 1000))

    def build_counter(name: str, counter: DatedCounter) -> dict[str, Any]:
        return {
            f"{name}_bytes": counter.value,
            f"{name}_quantum_bytes": None if counter.value is None else counter.quantum,
            f"{name}_since": format_moment(counter.since_ns),
            f"{name}_at": format_moment(counter.read_ns),
        }

    return {
        **build_counter("host", status.host),
        **build_counter("media", status.media),
        "used_percent": status.used_percent,
        "spare_percent": status.spare_percent,
        "spare_limit_percent": status.spare_limit_percent,
        "power_on_hours": status.power_on_hours,
    }


def _count_whole_bytes(observation: Observation) -> int | None:
    """Return the discarded bytes in whole granules of the drive, or None if discards were not traced."""
    discards, op = observation.discards, observation.interval.ops.get("discard")
    if discards is None:
        return None
    if op is None or not op.bytes:
        return 0
    return None if discards.whole_ratio is None else round(op.bytes * discards.whole_ratio)


def _build_op(op: OpInterval, seconds: float, absent: Collection[str]) -> dict[str, Any]:
    document = build_op_document(op, seconds, absent)
    return {
        "requests": document["count"],
        **{name: document[name] for name in ("bytes", "errors", "issued", "queue_depth")},
        **{f"{name}_ns": document["latency_ns"][name] for name in ("mean", "max", *QUANTILES)},
        "latency": _build_slots(op.latency.histogram),
        "queue": _build_queue(op.queue),
        **_build_waits(op),
        "sizes": _build_slots(op.sizes),
    }


def _build_waits(op: OpInterval) -> dict[str, int | None]:
    throttle, admission = op.throttle, op.admission
    values = (
        *((throttle.known, throttle.waited, throttle.sum_ns) if throttle else (None,) * 3),
        *((admission.known, admission.sum_ns) if admission else (None,) * 2),
    )
    return dict(zip(_WAIT_COLUMNS, values, strict=True))


def _build_queue(queue: Latency | None) -> list[dict[str, int]] | None:
    return None if queue is None else _build_slots(queue.histogram)


def _build_slots(histogram: Histogram) -> list[dict[str, int]]:
    """Return the slots with requests in ascending order."""
    return [{"slot": slot, "count": count} for slot, count in sorted(histogram.list_hits())]
