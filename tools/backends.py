"""The tracers that --backend names. Peers are imported when they are asked for: each brings ten modules."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.collectors.block.blk import BlockTracer
from opwatch.errors import UsageError
from opwatch.host.device import Leaf
from opwatch.owners.cells import By
from opwatch.trace.tracing import Tracer

BACKENDS = ("libbpf", "bcc", "bpftrace")


def attach(
    name: str,
    leaves: Sequence[Leaf],
    *,
    queue_time: bool = False,
    raw_tp: bool = False,
    slow_ns: int = 0,
    by: By | None = None,
) -> Tracer:
    """The tracer of this name, attached."""
    if name == "libbpf":
        return BlockTracer(leaves, queue_time=queue_time, raw_tp=raw_tp, slow_ns=slow_ns, by=by)
    if by:
        raise UsageError(f"--by is for the libbpf backend; {name} tells nobody's requests apart")
    if slow_ns:
        raise UsageError(f"--slow is for the libbpf backend; {name} tells no request by itself")
    if raw_tp:
        raise UsageError(f"--hooks is for the libbpf backend; {name} has one way to attach")
    if name == "bcc":
        from opwatch.collectors.block.bcc import BccTracer

        return BccTracer(leaves, queue_time=queue_time)
    from opwatch.collectors.block.bpftrace import BpftraceTracer

    return BpftraceTracer(leaves)
