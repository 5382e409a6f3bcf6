"""Owners of requests, as a part of an observation's JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opwatch.owners.cells import NO_WAITS, OwnedCounts, OwnedTime, OwnedWaits, OwnerKind
from opwatch.owners.containers import Container
from opwatch.owners.sample import OwnerCounts, Owners


def build_owners_document(owners: Owners) -> dict[str, Any]:
    """Return all owners, most bytes first, and the remainder that completes the sum."""
    return {
        "by": owners.by.value,
        "owners": [_build_owner(one, owners.has_waits) for one in owners.owners],
        "other": {"ops": _build_ops(owners.other, owners.has_waits)},
        "no_room": {"count": owners.no_room.requests, "bytes": owners.no_room.bytes},
    }


def _build_owner(one: OwnerCounts, has_waits: bool) -> dict[str, Any]:
    is_group = one.key.kind is OwnerKind.CGROUP
    # Kernel work without a start time and requests without an owner have no meaningful number.
    is_process = one.key.kind is OwnerKind.PROCESS or (one.key.kind is OwnerKind.KERNEL and one.key.since_ns)
    return {
        "kind": one.key.kind.value,
        "name": one.name,
        "group": one.name if is_group else one.group,
        "container": _build_container(one.container),
        "cgroup_number": one.key.number if is_group else None,
        "pid": one.key.number if is_process else None,
        "ops": _build_ops(one.ops, has_waits),
    }


def _build_container(container: Container | None) -> dict[str, Any] | None:
    if container is None:
        return None
    return {"engine": container.engine, "id": container.number, "pod": container.pod}


def _build_ops(ops: Mapping[str, OwnedCounts], has_waits: bool) -> dict[str, dict[str, Any]]:
    return {
        op: {
            "count": counts.requests,
            "bytes": counts.bytes,
            "time_ns": counts.sum_ns,
            "mean_ns": counts.sum_ns / counts.requests if counts.requests else None,
            **(_build_waits(counts.waits or NO_WAITS) if has_waits else {}),
        }
        for op, counts in ops.items()
    }


def _build_waits(waits: OwnedWaits) -> dict[str, dict[str, Any]]:
    return {
        "throttle_ns": {"waited": waits.throttled, **_build_time(waits.throttle)},
        "admission_ns": _build_time(waits.admission),
        "queue_ns": _build_time(waits.queue),
    }


def _build_time(time: OwnedTime) -> dict[str, Any]:
    return {"known": time.known, "sum": time.sum_ns, "mean": time.mean_ns}
