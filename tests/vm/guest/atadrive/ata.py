"""An ATA drive with an adjustable maximum address, by ATA8-ACS (host protected area) and ACS-3 (accessible
max address configuration). The command log is the oracle of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.vm.guest.atadrive.identify import build_identify_data
from tests.vm.guest.atadrive.security import COMMANDS, DriveLock, LockConfig

_IDENTIFY, _READ_NATIVE, _SET_MAX, _ACCESSIBLE = 0xEC, 0x27, 0x37, 0x78
_GET_NATIVE_ACCESSIBLE, _SET_ACCESSIBLE, _FREEZE_ACCESSIBLE = 0, 1, 2
_READY, _FAILED = 0x50, 0x51
ABORTED, NOT_FOUND = 0x04, 0x10
_KEEP = 0x1


@dataclass(frozen=True)
class DriveConfig:
    """Properties of the drive. An `is_once` drive accepts one change of either kind per power cycle, an
    `is_stubborn` drive none. With `size_of_start` the host always sees the initial size, as libata caches it.
    `lock` is the security feature set, `hidden` the number of sectors hidden earlier."""

    serial: str = "opw-hpa"
    sectors: int = 32768
    has_area: bool = True
    has_accessible: bool = False
    is_once: bool = False
    is_stubborn: bool = False
    size_of_start: bool = False
    lock: LockConfig = field(default_factory=LockConfig)
    hidden: int = 0


@dataclass(frozen=True)
class TaskFile:
    """A command as the drive receives it."""

    features: int
    count: int
    lba: int
    command: int
    data: bytes = b""


@dataclass(frozen=True)
class Outcome:
    """The drive's registers after a command."""

    error: int = 0
    count: int = 0
    lba: int = 0
    data: bytes = b""

    @property
    def status(self) -> int:
        return _FAILED if self.error else _READY


class AtaDrive:
    """The drive without its contents."""

    def __init__(self, wishes: DriveConfig, log: Path) -> None:
        self.wishes, self._log = wishes, log
        self.current = self._kept = wishes.sectors - wishes.hidden
        self._changes, self._is_frozen, self._before = 0, False, 0
        # One past the highest sector written since the last change.
        self._end = 0
        # Hooks set by the owner of the contents: free a share; return the allocated bytes.
        self.let_go: Callable[[float], None] = lambda _: None
        self.mapped: Callable[[], int] = lambda: 0
        self.lock = DriveLock(wishes.lock, self._log_action, lambda share: self.let_go(share))
        self._log_action("start")

    def track_write(self, end: int) -> None:
        self._end = max(self._end, end)

    def lose_power(self) -> None:
        """Drop every volatile setting, and accept a change again."""
        self.current, self._changes, self._is_frozen = self._kept, 0, False
        self.lock.lose_power()
        self._log_action("power")

    def identify(self) -> bytes:
        return build_identify_data(self.wishes, self.current, self.lock.word)

    def _log_action(self, what: str) -> None:
        entry = {"what": what, "sectors": self.current, "written_to": self._end, "mapped": self.mapped()}
        line = json.dumps(entry)
        with self._log.open("a") as log:
            log.write(f"{line}\n")
        self._end = 0

    def run_task(self, task: TaskFile) -> Outcome:
        before, self._before = self._before, task.command
        if task.command in COMMANDS:
            return Outcome(0 if self.lock.run_command(task.command, task.data) else ABORTED)
        self.lock.cancel_prepared_erase()
        if task.command == _IDENTIFY:
            return Outcome(data=self.identify())
        if task.command == _READ_NATIVE and self.wishes.has_area:
            return Outcome(lba=self.wishes.sectors - 1)
        if task.command == _SET_MAX and self.wishes.has_area:
            if before != _READ_NATIVE:
                self._log_action("set without a look")
                return Outcome(ABORTED)
            return self._set_capacity(task.lba, "set", is_kept=bool(task.count & _KEEP))
        if task.command == _ACCESSIBLE and self.wishes.has_accessible:
            return self._run_accessible(task)
        return Outcome(ABORTED)

    def _run_accessible(self, task: TaskFile) -> Outcome:
        if task.features == _GET_NATIVE_ACCESSIBLE:
            return Outcome(lba=self.wishes.sectors - 1)
        if task.features == _FREEZE_ACCESSIBLE:
            self._is_frozen = True
            return Outcome()
        if task.features != _SET_ACCESSIBLE or self._is_frozen:
            return Outcome(ABORTED)
        return self._set_capacity(task.lba, "set accessible", is_kept=True)

    def _set_capacity(self, lba: int, what: str, *, is_kept: bool) -> Outcome:
        if self.wishes.is_stubborn or lba >= self.wishes.sectors:
            self._log_action(f"{what} refused")
            return Outcome(ABORTED)
        # A drive accepts one persistent SET MAX per power cycle, a strict drive one change of any kind.
        is_counted = self.wishes.is_once or (is_kept and what == "set")
        if is_counted and self._changes:
            self._log_action(f"{what} refused")
            return Outcome(NOT_FOUND)
        self._changes += is_counted
        self.current = lba + 1
        if is_kept:
            self._kept = self.current
        self._log_action(what)
        return Outcome(lba=lba)
