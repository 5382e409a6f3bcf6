"""Look up name and control group of a process, guarding against pid reuse."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from opwatch.foreign import read_text, split_lines

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class NamedProcess:
    """`name` is the name of the first thread, `group` the path of the version 2 group or None."""

    name: str
    group: str | None


def find_process(pid: int, began_ns: int, proc: Path = _PROC) -> NamedProcess | None:
    """Return the process with this pid and start time, or None if it has exited.

    `began_ns` is in boot time. The kernel reports the start time in ticks, rounded down.
    """
    folder = proc / str(pid)
    try:
        stat = read_text(folder / "stat")
        groups = split_lines(read_text(folder / "cgroup"))
    except OSError:
        return None
    # The name is in parentheses and may contain any character, including parentheses.
    name, closing, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if not closing or len(fields) < 20:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    if int(fields[19]) != began_ns * ticks // 10**9:
        return None
    group = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    return NamedProcess(name, group)
