"""Contexts in which a kernel runs no BPF program and counts it nowhere. Pure.

Some kernels skip every program while a thread of PID 1 is current: an interrupt that comes then ends
requests that no tracer sees. /proc/1 counts the switches from its threads; a program that sees none of them
was skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opwatch.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from opwatch.trace.trust import Drift

WHERE = "this kernel runs no BPF programs while PID 1 is current"
# Fewer switches tell nothing: a task may be counted a moment before its program runs.
ENOUGH = 3


@frozen
class Switches:
    """How often PID 1 gave way to another task: by the kernel's count, and as a program saw it meanwhile."""

    kernel: int
    program: int

    @property
    def skipped(self) -> bool | None:
        """Whether programs are skipped there; None when PID 1 hardly ran."""
        if self.kernel < ENOUGH:
            return None
        return self.program < self.kernel // 2


def context_switches(statuses: Iterable[str]) -> int:
    """The sum over the texts of /proc/PID/task/*/status."""
    fields = (line.split() for text in statuses for line in text.split("\n") if "ctxt_switches:" in line)
    return sum(int(field[1]) for field in fields if len(field) == 2 and field[1].isdecimal())


def missing_there(drift: Mapping[str, Drift]) -> str:
    """What it means for a trace: how many requests the kernel counted and no program saw."""
    if not drift:
        return f"{WHERE}: completions may be missing, nobody can tell how many"
    missing = sum(max(group_drift.drift, 0) for group_drift in drift.values())
    words = f"up to {missing} completions may be missing for it" if missing else "none is missing here"
    return f"{WHERE}: {words}"
