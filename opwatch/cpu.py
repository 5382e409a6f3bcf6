"""CPU time of the machine: cumulative kernel counters, and the use between two readings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from opwatch.closing import Closable
from opwatch.errors import BadInput
from opwatch.foreign import parse_all_unsigned

# /proc/stat has units of USER_HZ, regardless of the kernel's timer frequency.
TICKS_PER_S = 100
STAT = Path("/proc/stat")
# Room for the lines of a thousand CPUs and the lines after them.
_BUFFER_BYTES = 1 << 17
# User, nice, system, idle, iowait, irq, softirq, steal.
_MIN_FIELDS = 8
# User, nice, system, irq and softirq are each truncated to a tick.
_TRUNCATED_FIELDS = 5


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Sums over all CPUs since boot, in ticks.

    `cpus` counts online CPUs. `user` includes nice and guest time, `irq` includes softirq. `steal` is time in
    which a virtual CPU was ready, but the host ran something else.
    """

    cpus: int
    user: int
    system: int
    irq: int
    steal: int


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU time in seconds between two readings that are `seconds` apart."""

    seconds: float
    cpus: int
    user_s: float
    system_s: float
    irq_s: float
    steal_s: float

    @property
    def busy_s(self) -> float:
        """Return the time that CPUs were busy."""
        return self.user_s + self.system_s + self.irq_s

    @property
    def error_s(self) -> float:
        """Return the maximum error: sums are truncated to ticks, and each CPU updates its counters at its own
        tick."""
        return (_TRUNCATED_FIELDS + self.cpus) / TICKS_PER_S

    @property
    def busy_cores(self) -> float:
        return self.busy_s / self.seconds

    def plus(self, later: CpuUse) -> CpuUse:
        """Add the use of the directly following interval."""
        return CpuUse(
            self.seconds + later.seconds,
            later.cpus,
            self.user_s + later.user_s,
            self.system_s + later.system_s,
            self.irq_s + later.irq_s,
            self.steal_s + later.steal_s,
        )


@dataclass(frozen=True, slots=True)
class CommandCpu:
    """CPU time of a command and of all descendants that were waited for.

    The sum is exact; the division into user and system time is sampled by ticks.
    """

    user_s: float
    system_s: float

    @property
    def total_s(self) -> float:
        return self.user_s + self.system_s


def compute_cpu_use(then: CpuTimes | None, now: CpuTimes | None, elapsed_ns: int) -> CpuUse | None:
    """Return the use between two readings.

    None if a reading is missing or a counter decreased: some hosts reduce reported steal time later.
    """
    if not then or not now or elapsed_ns <= 0:
        return None
    pairs = ((then.user, now.user), (then.system, now.system), (then.irq, now.irq), (then.steal, now.steal))
    grown = [after - before for before, after in pairs]
    if min(grown) < 0:
        return None
    return CpuUse(elapsed_ns / 1e9, now.cpus, *(ticks / TICKS_PER_S for ticks in grown))


def parse_cpu_times(text: str) -> CpuTimes:
    """Parse the text of /proc/stat, up to its interrupt lines. Pure."""
    name, *words = text.partition("\n")[0].split()[: 1 + _MIN_FIELDS] or [""]
    counts, cpus = parse_all_unsigned(words), text.count("\ncpu")
    if name != "cpu" or counts is None or len(counts) < _MIN_FIELDS or not cpus:
        raise BadInput(f"/proc/stat has no CPU times in the expected place: {text[:200]!r}")
    user, nice, system, _, _, irq, soft_irq, steal = counts
    return CpuTimes(cpus, user + nice, system, irq + soft_irq, steal)


class CpuClock(Closable):
    """Reads the CPU times. Open from construction until close(). `problem` is the reason if there are
    none."""

    def __init__(self, path: Path = STAT) -> None:
        self.problem: str | None = None
        self._descriptor = -1
        self._room = bytearray(_BUFFER_BYTES)
        ticks = os.sysconf("SC_CLK_TCK")
        if ticks != TICKS_PER_S:
            self.problem = f"this kernel counts CPU time in {ticks} ticks per second, not {TICKS_PER_S}"
            return
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.problem = f"{path}: {error.strerror}"

    def read_times(self) -> CpuTimes | None:
        """Return the current times, or None if unreadable."""
        if self._descriptor < 0:
            return None
        try:
            # Reading only the first part saves nothing: the kernel generates the whole file either way.
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
