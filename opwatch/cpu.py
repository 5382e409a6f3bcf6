"""CPU time of the machine: counters of the kernel's that only grow, and what was used in between."""

from __future__ import annotations

import os
from pathlib import Path

from opwatch.closing import Closing
from opwatch.errors import BadInput
from opwatch.foreign import numbers
from opwatch.frozen import frozen

# The kernel prints hundredths of a second, whatever its own clock ticks by.
TICKS_PER_S = 100
STAT = Path("/proc/stat")
# A thousand CPUs and what stands behind them have room in it.
_ROOM = 1 << 17
# User, nice, system, idle, waiting for I/O, interrupts, soft interrupts, stolen.
_LEAST_FIELDS = 8
# Each of user, nice, system and both kinds of interrupts is cut off to a tick.
_CUT_OFF = 5


@frozen
class CpuTimes:
    """Sums over all CPUs since the machine started, in ticks. `cpus` are those that are online; `user` has
    niced processes and guests in it, `irq` both kinds of interrupts; `steal` is what the host of a virtual
    machine gave to others while a CPU of it had work."""

    cpus: int
    user: int
    system: int
    irq: int
    steal: int


@frozen
class CpuUse:
    """CPU time between two readings that are `seconds` apart, in seconds."""

    seconds: float
    cpus: int
    user_s: float
    system_s: float
    irq_s: float
    steal_s: float

    @property
    def busy_s(self) -> float:
        """What CPUs worked, for whomever."""
        return self.user_s + self.system_s + self.irq_s

    @property
    def error_s(self) -> float:
        """How far off it is at most, as the kernel counts: sums are cut off to ticks, and each CPU adds to
        them when its own clock ticks."""
        return (_CUT_OFF + self.cpus) / TICKS_PER_S

    @property
    def busy_cores(self) -> float:
        return self.busy_s / self.seconds

    def plus(self, later: CpuUse) -> CpuUse:
        """Both times together, where the later one begins when this one ends."""
        return CpuUse(
            self.seconds + later.seconds,
            later.cpus,
            self.user_s + later.user_s,
            self.system_s + later.system_s,
            self.irq_s + later.irq_s,
            self.steal_s + later.steal_s,
        )


@frozen
class CommandCpu:
    """CPU time of a command and of all its descendants that somebody among them waited for. The sum is exact;
    which part of it was the kernel's is counted by ticks."""

    user_s: float
    system_s: float

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s


def cpu_use(then: CpuTimes | None, now: CpuTimes | None, elapsed_ns: int) -> CpuUse | None:
    """What was used between two readings; None where one is missing, or where anything has gone back: some
    hosts take back what they have said to be stolen."""
    if not then or not now or elapsed_ns <= 0:
        return None
    pairs = ((then.user, now.user), (then.system, now.system), (then.irq, now.irq), (then.steal, now.steal))
    grown = [after - before for before, after in pairs]
    if min(grown) < 0:
        return None
    return CpuUse(elapsed_ns / 1e9, now.cpus, *(ticks / TICKS_PER_S for ticks in grown))


def parse_cpu_times(text: str) -> CpuTimes:
    """The times in what /proc/stat says, up to its interrupts. Pure."""
    name, *words = text.partition("\n")[0].split()[: 1 + _LEAST_FIELDS] or [""]
    counts, cpus = numbers(words), text.count("\ncpu")
    if name != "cpu" or counts is None or len(counts) < _LEAST_FIELDS or not cpus:
        raise BadInput(f"/proc/stat has no times of CPUs where they belong: {text[:200]!r}")
    user, nice, system, _, _, irq, soft_irq, steal = counts
    return CpuTimes(cpus, user + nice, system, irq + soft_irq, steal)


class CpuClock(Closing):
    """Reads the times of all CPUs. It is open from construction to close(). `problem` is why there are
    none."""

    def __init__(self, path: Path = STAT) -> None:
        self.problem: str | None = None
        self._descriptor = -1
        self._room = bytearray(_ROOM)
        ticks = os.sysconf("SC_CLK_TCK")
        if ticks != TICKS_PER_S:
            self.problem = f"this kernel prints CPU time by {ticks} ticks a second, not by {TICKS_PER_S}"
            return
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"

    def read(self) -> CpuTimes | None:
        """The times until now; None where they cannot be read."""
        if self._descriptor < 0:
            return None
        try:
            # What stands first costs as much as all of it: the kernel makes it whole in any case.
            size = os.preadv(self._descriptor, [self._room], 0)
            end = self._room.find(b"\nintr", 0, size)
            return parse_cpu_times(str(self._room[: end if end >= 0 else size], "ascii", "replace"))
        except (OSError, BadInput) as error:
            self.problem = str(error)
            return None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
