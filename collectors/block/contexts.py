"""Watch PID 1 briefly to detect whether this kernel skips BPF programs while PID 1 is current."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from opwatch.trace.contexts import MIN_SWITCHES, SwitchCounts, count_switches, describe_missing

_LONGEST_S, _LOOK_S = 2.0, 0.05
# Inode of the initial PID namespace, PROC_PID_INIT_INO of include/linux/proc_ns.h since Linux 3.8.
_INITIAL = 0xEFFFFFFC
UNLOADED = "the program that counts switches of PID 1 could not be loaded"
# The inner shells outlive the outer shell, so PID 1 wakes up and reaps each of them.
_ORPHANS = ("/bin/sh", "-c", "(:) & " * MIN_SWITCHES)


def _count_switches() -> int:
    texts = []
    for status in Path("/proc/1/task").glob("*/status"):
        with contextlib.suppress(OSError):
            texts.append(status.read_text(errors="replace"))
    return count_switches(texts)


def _wake_init() -> None:
    """Give PID 1 work."""
    silent = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in range(3)]
    with contextlib.suppress(OSError):
        os.waitpid(os.posix_spawn(_ORPHANS[0], _ORPHANS, os.environ, file_actions=silent), 0)


def is_global(proc: Path = Path("/proc")) -> bool:
    """Return whether /proc/1 is the machine's PID 1.

    Requires the initial PID namespace for both us and this /proc, which a container may not have.
    """
    try:
        ours = str((proc / "self/ns/pid").readlink()) == f"pid:[{_INITIAL}]"
        return ours and str((proc / "self").readlink()) == str(os.getpid())
    except OSError:
        return False


def watch_switches(longest_s: float = _LONGEST_S, proc: Path = Path("/proc")) -> SwitchCounts | str:
    """Count switches until PID 1 has run a few times, or return the reason why they are unknown."""
    if not is_global(proc):
        return "/proc/1 may not be the machine's PID 1 (in a container?)"
    try:
        from opwatch._native import Contexts, ProbeError
    except ImportError:
        return UNLOADED
    try:
        probe = Contexts()
    except (ProbeError, OSError):
        return UNLOADED
    try:
        before, until = _count_switches(), time.monotonic() + longest_s
        grown = 0
        while grown < MIN_SWITCHES and time.monotonic() < until:
            _wake_init()
            time.sleep(_LOOK_S)
            grown = _count_switches() - before
        # The latest switches may not have reached the program yet.
        time.sleep(_LOOK_S / 10)
        return SwitchCounts(grown, probe.switches())
    finally:
        probe.close()


class ContextProbe:
    """Watches switches in a separate thread after start(). Nothing waits for it."""

    def __init__(self) -> None:
        self._switches: SwitchCounts | str = "not checked yet"
        self._thread = threading.Thread(target=self._watch_switches, name="contexts", daemon=True)

    def _watch_switches(self) -> None:
        self._switches = watch_switches()

    def start(self) -> None:
        self._thread.start()

    def has_skips(self, wait_s: float = 0.0) -> bool:
        """Return whether programs are known to be skipped. False while unknown."""
        self._thread.join(wait_s)
        return isinstance(self._switches, SwitchCounts) and bool(self._switches.is_skipping)

    @property
    def is_over(self) -> bool:
        """Whether the check is complete."""
        return not self._thread.is_alive()

    def describe_effect(self, wait_s: float = 0.0) -> str | None:
        """Return the effect on concurrent tracing, or None if no skips are known."""
        return describe_missing({}) if self.has_skips(wait_s) else None
