"""Detect kernels that skip BPF programs in some contexts without counting the skips.

Some kernels skip every program while a thread of PID 1 is current. If an interrupt completes requests at such
a moment, no tracer sees the completions. /proc/1 counts the context switches of PID 1's threads; if a program
on that event sees hardly any of them, the kernel skips programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opwatch.trace.trust import Drift


BLIND_CONTEXT = "this kernel runs no BPF programs while PID 1 is current"
# Ignore fewer switches, because the kernel may count a task's switch a moment before the program runs.
MIN_SWITCHES = 3


@dataclass(frozen=True, slots=True)
class SwitchCounts:
    """Context switches of PID 1 in the same period, counted by the kernel and seen by a program."""

    kernel: int
    program: int

    @property
    def is_skipping(self) -> bool | None:
        """True if the kernel skips programs while PID 1 is current, None if PID 1 hardly ran."""
        if self.kernel < MIN_SWITCHES:
            return None
        return self.program < self.kernel // 2


def count_switches(statuses: Iterable[str]) -> int:
    """Return the number of context switches in the texts of /proc/PID/task/*/status."""
    fields = (line.split() for text in statuses for line in text.split("\n") if "ctxt_switches:" in line)
    return sum(int(field[1]) for field in fields if len(field) == 2 and field[1].isdecimal())


def describe_missing(drift: Mapping[str, Drift]) -> str:
    """Return a sentence on the requests that the kernel counted but no program saw."""
    if not drift:
        return f"{BLIND_CONTEXT}: an unknown number of completions may be missing"
    missing = sum(max(group_drift.drift, 0) for group_drift in drift.values())
    words = (
        f"up to {missing} completions may be missing because of that" if missing else "none is missing here"
    )
    return f"{BLIND_CONTEXT}: {words}"
