"""What a process is called and which control group it is in, as long as it is the one that is meant."""

from __future__ import annotations

import os
from pathlib import Path

from opwatch.foreign import lines_of, read_text
from opwatch.frozen import frozen

_PROC = Path("/proc")


@frozen
class NamedProcess:
    """`name` is that of its first thread, `group` the path of its version 2 group, None where it has none."""

    name: str
    group: str | None


def find_process(pid: int, began_ns: int, proc: Path = _PROC) -> NamedProcess | None:
    """The process of this number that began then, by the clock that goes on in sleep; None where it has gone.
    The kernel tells when a process began in ticks, which is cut off."""
    folder = proc / str(pid)
    try:
        stat = read_text(folder / "stat")
        groups = lines_of(read_text(folder / "cgroup"))
    except OSError:
        return None
    # The name stands in parentheses and may hold any character, these too.
    name, closing, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    if not closing or len(fields) < 20:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    if int(fields[19]) != began_ns * ticks // 10**9:
        return None
    group = next((line.removeprefix("0::") for line in groups if line.startswith("0::")), None)
    return NamedProcess(name, group)
