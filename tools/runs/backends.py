"""The tracers that --backend names. The other backends are imported on demand, because each brings ten
modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opwatch.collectors.block.blk import BlockTracer
from opwatch.errors import OpwatchError, UsageError
from opwatch.host.device import Leaf
from opwatch.owners.cells import OwnerGrouping
from opwatch.trace.tracing import Tracer
from opwatch.trace.unavailable import OWNERS

BACKENDS = ("libbpf", "bcc", "bpftrace")


@dataclass(frozen=True, slots=True)
class Attribution:
    """The kind of owners to distinguish. With `is_offered` the user did not ask for it, and a watch goes on
    without owners if the kernel refuses."""

    by: OwnerGrouping | None
    is_offered: bool = False


_NO_OWNERS = Attribution(None)


def attach_tracer(
    name: str,
    leaves: Sequence[Leaf],
    *,
    queue_time: bool = False,
    raw_tp: bool = False,
    slow_ns: int = 0,
    owners: Attribution = _NO_OWNERS,
) -> Tracer:
    """Return the attached tracer of this name."""
    if name == "libbpf":
        return _attach_own(leaves, owners, queue_time=queue_time, raw_tp=raw_tp, slow_ns=slow_ns)
    if owners.by:
        raise UsageError(f"--by needs the libbpf backend; {name} does not distinguish owners")
    if slow_ns:
        raise UsageError(f"--slow needs the libbpf backend; {name} does not report single requests")
    if raw_tp:
        raise UsageError(f"--hooks needs the libbpf backend; {name} always attaches in the same way")
    if name == "bcc":
        from opwatch.collectors.block.bcc import BccTracer

        return BccTracer(leaves, queue_time=queue_time)
    from opwatch.collectors.block.bpftrace import BpftraceTracer

    return BpftraceTracer(leaves)


def _attach_own(
    leaves: Sequence[Leaf], owners: Attribution, *, queue_time: bool, raw_tp: bool, slow_ns: int
) -> Tracer:
    """Return opwatch's own tracer, without owners if optional and refused by the kernel."""

    def make_tracer(by: OwnerGrouping | None) -> BlockTracer:
        return BlockTracer(leaves, queue_time=queue_time, raw_tp=raw_tp, slow_ns=slow_ns, by=by)

    try:
        return make_tracer(owners.by)
    except OpwatchError as error:
        if not owners.is_offered:
            raise
        # A failure that is unrelated to owners is raised here.
        plain = make_tracer(None)
        plain.lacks = (
            *plain.lacks,
            f"{OWNERS}: {error}",
        )
        return plain
