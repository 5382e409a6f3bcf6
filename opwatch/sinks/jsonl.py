"""JSON lines, schema opwatch/1: one object per device and interval, and per summary."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from opwatch import SCHEMA
from opwatch.cpu import CpuUse
from opwatch.samples.observation import Arrival, Event, Leaving, Observation
from opwatch.sinks.owners.document import build_owners_document
from opwatch.sinks.terminal import Writer
from opwatch.trace.abi import OPS
from opwatch.trace.account.stall import Stall
from opwatch.trace.derive import Latency, OpInterval, Wait, make_idle_op
from opwatch.trace.kernel_times import KernelTimes
from opwatch.trace.trust import LossAccount
from opwatch.trace.unavailable import DEPTH, ERRORS, IRQ, ISSUED, SEQUENTIAL, TRUST

if TYPE_CHECKING:
    from opwatch.samples.slow import SlowIo
    from opwatch.waf.live import CurrentWaf


_IDLE = make_idle_op()
# Fields that are null without a measurement.
_ABSENT = {
    ERRORS: ("errors", "error_bytes", "errors_by_status"),
    ISSUED: ("issued", "sequential_ratio"),
    DEPTH: ("queue_depth",),
    SEQUENTIAL: ("sequential_ratio",),
}


def _build_latency(latency: Latency) -> dict[str, Any]:
    return {
        "mean": latency.mean,
        **latency.quantiles,
        "max": latency.max,
        "max_slack": latency.max_slack_ns,
    }


def _build_wait(wait: Wait) -> dict[str, Any]:
    waited = {} if wait.waited is None else {"waited": wait.waited}
    return {"known": wait.known, **waited, "mean": wait.mean, "max": wait.max, "max_limit": wait.max_limit}


def build_op_document(op: OpInterval, seconds: float, absent: Collection[str] = ()) -> dict[str, Any]:
    """Return one operation of an interval. Values in `absent` are null."""
    document: dict[str, Any] = {
        "count": op.count,
        "bytes": op.bytes,
        "errors": op.errors,
        "error_bytes": op.error_bytes,
        "errors_by_status": op.statuses,
        "issued": op.issued,
        "per_s": op.count / seconds if seconds else None,
        "bytes_per_s": op.bytes / seconds if seconds else None,
        "queue_depth": op.queue_depth,
        "sequential_ratio": op.sequential_ratio,
        "size_bytes": {"p50": op.median_size()},
        "latency_ns": _build_latency(op.latency),
    }
    for name in absent:
        document |= dict.fromkeys(_ABSENT.get(name, ()))
    if op.throttle:
        document["throttle_ns"] = _build_wait(op.throttle)
    if op.admission:
        document["admission_ns"] = _build_wait(op.admission)
    if op.queue:
        document["queue_ns"] = _build_latency(op.queue)
    return document


def _build_trust(trust: LossAccount) -> dict[str, Any]:
    return {
        "issued": trust.issued,
        "completed": trust.completed,
        "in_flight": trust.in_flight,
        "unmatched": trust.unmatched,
        "unmatched_flushes": trust.unmatched_flushes,
        "partial": trust.partial,
        "requeued": trust.requeued,
        "errors": trust.errors,
        "never_issued": trust.never_issued,
        "flush_tails": trust.flush_tails,
        "taken_back": trust.taken_back,
        "refused": trust.refused,
        "overwritten": trust.overwritten,
        "map_full": trust.map_full,
        "clock_back": trust.clock_back,
        "misses": trust.misses,
        "drift": {group: drift.drift for group, drift in trust.drift.items()},
        "drift_slack": {group: drift.slack for group, drift in trust.drift.items()},
        "byte_drift": {group: drift.drift for group, drift in trust.byte_drift.items()},
        "no_drift": trust.no_drift,
    }


def _build_live(live: CurrentWaf) -> dict[str, Any]:
    return {
        "waf": live.waf,
        "waf_error": live.waf_error,
        "reason": live.reason,
        "window_s": live.window_s,
        "nand_bytes_per_s": live.nand_bytes_per_s,
        "nand_error_bytes_per_s": live.nand_error_bytes_per_s,
        "source": live.source,
        "end_mono_ns": live.mono_ns,
    }


def _build_slow(slow: SlowIo, end: datetime, end_ns: int) -> dict[str, Any]:
    return {
        "limit_ns": slow.limit_ns,
        "count": slow.count,
        "noted": slow.noted,
        "left_out": slow.left_out,
        "requests": [
            {
                "time": request.find_end_time(end, end_ns).isoformat(timespec="milliseconds"),
                "end_mono_ns": request.end_ns,
                "op": request.op,
                "sector": request.sector,
                "bytes": request.bytes,
                "latency_ns": request.latency_ns,
                "queue_ns": request.queue_ns,
                "submitter": request.submitter.value if request.submitter else None,
                "reason": request.reason,
                "pid": request.pid,
                "name": request.name,
                "cgroup": request.cgroup,
                "cgroup_number": request.cgroup_number,
            }
            for request in slow.requests
        ],
    }


def _build_arrival(arrival: Arrival) -> dict[str, Any]:
    return {
        "time": arrival.at.isoformat(timespec="milliseconds"),
        "mono_ns": arrival.at_ns,
        "unseen_since_mono_ns": arrival.since_ns,
        "unseen_requests": arrival.unseen,
        "unseen_bytes": arrival.unseen_bytes,
        "unseen_requests_slack": arrival.slack,
        "unseen_bytes_slack": arrival.slack_bytes,
        "reason": arrival.reason,
    }


def _build_leaving(leaving: Leaving) -> dict[str, Any]:
    return {
        "time": leaving.at.isoformat(timespec="milliseconds"),
        "mono_ns": leaving.at_ns,
        "why": leaving.why,
        "doubt": leaving.doubt,
    }


def build_event_document(event: Event) -> dict[str, Any]:
    """Return an arrival or removal of a disk as the object to print."""
    return {
        "schema": SCHEMA,
        "type": "event",
        "event": event.kind,
        "device": event.device,
        "origin": event.origin,
        "time": event.at.isoformat(timespec="milliseconds"),
        "mono_ns": event.at_ns,
        "text": event.text,
        "arrival": _build_arrival(event.arrival) if event.arrival else None,
        "leaving": _build_leaving(event.leaving) if event.leaving else None,
    }


def _build_stall(stall: Stall) -> dict[str, Any]:
    return {
        "in_flight": stall.in_flight,
        "since_mono_ns": stall.since_ns,
        "at_least_ns": stall.least_ns,
    }


def _build_kernel_times(times: KernelTimes) -> dict[str, Any]:
    return {
        "await_ns": {
            group: {"mean": awaited.mean_ns, "error": awaited.error_ns}
            for group, awaited in times.awaits.items()
        },
        "busy_ratio": times.busy_ratio,
        "busy_error": times.busy_error,
        "queue_size": times.queue_size,
    }


def _build_cpu(cpu: CpuUse, absent: Collection[str]) -> dict[str, Any]:
    return {
        "cpus": cpu.cpus,
        "interval_s": cpu.seconds,
        "busy_cores": cpu.busy_cores,
        "busy_cores_error": cpu.error_s / cpu.seconds,
        "user_s": cpu.user_s,
        "system_s": cpu.system_s,
        "irq_s": None if IRQ in absent else cpu.irq_s,
        "steal_s": cpu.steal_s,
    }


def build_observation_document(observation: Observation) -> dict[str, Any]:
    """Return one observation as the object to print."""
    seconds, absent = observation.interval.seconds, observation.missing_fields
    return {
        "schema": SCHEMA,
        "type": "summary" if observation.final else "interval",
        "device": observation.device,
        "origin": observation.origin,
        "level": observation.level,
        "backend": observation.backend,
        "time": observation.at.isoformat(timespec="milliseconds"),
        "begin_mono_ns": observation.interval.begin_ns,
        "end_mono_ns": observation.interval.end_ns,
        "interval_s": seconds,
        "ops": {
            name: build_op_document(observation.interval.ops.get(name) or _IDLE, seconds, absent)
            for name in OPS
        },
        "trust": None if TRUST in absent else _build_trust(observation.trust),
        "in_flight_at_start": observation.in_flight_at_start,
        "unexplained": None if TRUST in absent else observation.unexplained,
        "explained": None if TRUST in absent else [loss.words for loss in observation.explained_losses],
        "stall": _build_stall(observation.stall) if observation.stall else None,
        "lacks": list(observation.lacks),
        "blind": observation.blind,
        "waf": None if observation.live is None else _build_live(observation.live),
        "discards": None if observation.discards is None else asdict(observation.discards),
        "slow": (
            _build_slow(observation.slow, observation.at, observation.interval.end_ns)
            if observation.slow
            else None
        ),
        "kernel_times": _build_kernel_times(observation.kernel_times) if observation.kernel_times else None,
        "cpu": _build_cpu(observation.cpu, absent) if observation.cpu else None,
        "owners": build_owners_document(observation.owners) if observation.owners else None,
        "arrival": _build_arrival(observation.arrival) if observation.arrival else None,
        "leaving": _build_leaving(observation.leaving) if observation.leaving else None,
    }


class JsonLines:
    """Writes each observation as one line immediately."""

    def __init__(self, stream: TextIO, *, quiet: bool = False) -> None:
        self._writer = Writer(stream)
        self._quiet = quiet

    def begin_output(self, notes: list[str]) -> None:
        """Do nothing: notes are messages, and the command prints them to stderr."""

    def write_observation(self, observation: Observation) -> None:
        if observation.final or not self._quiet:
            self._writer.write_json(build_observation_document(observation))

    def write_event(self, event: Event) -> None:
        if not self._quiet:
            self._writer.write_json(build_event_document(event))
