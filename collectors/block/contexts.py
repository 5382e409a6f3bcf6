"""Watches PID 1 for a moment: does this kernel run BPF programs while it is current?"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

from opwatch.trace.contexts import ENOUGH, Switches, context_switches, missing_there

_LONGEST_S, _LOOK_S = 2.0, 0.05
# The inode of the initial PID namespace, PROC_PID_INIT_INO of include/linux/proc_ns.h since Linux 3.8.
_INITIAL = 0xEFFFFFFC
UNLOADED = "the program that counts switches of PID 1 could not be loaded"
# The inner shells outlive the outer one: PID 1 inherits them, wakes when each ends, and reaps it.
_ORPHANS = ("/bin/sh", "-c", "(:) & " * ENOUGH)


def _counted() -> int:
    texts = []
    for status in Path("/proc/1/task").glob("*/status"):
        with contextlib.suppress(OSError):
            texts.append(status.read_text(errors="replace"))
    return context_switches(texts)


def _wake() -> None:
    """Give PID 1 something to do."""
    silent = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in range(3)]
    with contextlib.suppress(OSError):
        os.waitpid(os.posix_spawn(_ORPHANS[0], _ORPHANS, os.environ, file_actions=silent), 0)


def is_global(proc: Path = Path("/proc")) -> bool:
    """Whether PID 1 of this /proc is the one that programs know by that number: we are in the initial PID
    namespace, and so is this /proc. In a container neither need be so."""
    try:
        ours = str((proc / "self/ns/pid").readlink()) == f"pid:[{_INITIAL}]"
        return ours and str((proc / "self").readlink()) == str(os.getpid())
    except OSError:
        return False


def watch_switches(longest_s: float = _LONGEST_S, proc: Path = Path("/proc")) -> Switches | str:
    """Count switches until PID 1 has run a few times; the reason where nobody can tell."""
    if not is_global(proc):
        return "/proc/1 is not known to be the machine's PID 1: this may be a container"
    try:
        from opwatch._native import Contexts, ProbeError
    except ImportError:
        return UNLOADED
    try:
        probe = Contexts()
    except (ProbeError, OSError):
        return UNLOADED
    try:
        before, until = _counted(), time.monotonic() + longest_s
        grown = 0
        while grown < ENOUGH and time.monotonic() < until:
            _wake()
            time.sleep(_LOOK_S)
            grown = _counted() - before
        # What was counted last may be on its way to the program still.
        time.sleep(_LOOK_S / 10)
        return Switches(grown, probe.switches())
    finally:
        probe.close()


class ContextProbe:
    """Watches switches in a thread of its own, from start() on: nothing waits for it."""

    def __init__(self) -> None:
        self._switches: Switches | str = "nobody has looked yet"
        self._thread = threading.Thread(target=self._run, name="contexts", daemon=True)

    def _run(self) -> None:
        self._switches = watch_switches()

    def start(self) -> None:
        self._thread.start()

    def skips(self, wait_s: float = 0.0) -> bool:
        """Whether programs are known to be skipped; False while nobody knows."""
        self._thread.join(wait_s)
        return isinstance(self._switches, Switches) and bool(self._switches.skipped)

    @property
    def is_over(self) -> bool:
        """Whether it has found out what it can."""
        return not self._thread.is_alive()

    def note(self, wait_s: float = 0.0) -> str | None:
        """What it means for what was followed meanwhile, None where nothing is known to be skipped."""
        return missing_there({}) if self.skips(wait_s) else None
