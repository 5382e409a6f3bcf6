"""The security feature set of ACS-3: password, locking, and erase."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

SUPPORTED, ENABLED, LOCKED, FROZEN, EXPIRED, ENHANCED = (1 << bit for bit in range(6))
_SET, _UNLOCK, _PREPARE, _ERASE, _FREEZE, _DISABLE = range(0xF1, 0xF7)
COMMANDS = range(_SET, _DISABLE + 1)
# Bits of the data that accompany a command: master password, enhanced erase, security level maximum.
_IS_MASTER, _IS_ENHANCED, _IS_MAXIMUM = 1 << 0, 1 << 1, 1 << 8
_MAX_TRIES = 5
_OTHER_PASSWORD = b"theirs"


@dataclass(frozen=True)
class LockConfig:
    """Properties of the security feature set. `state` is the initial word 128 of IDENTIFY; `normal_word` and
    `enhanced_word` are words 89 and 90. An erase takes `erase_s` seconds, ERASE PREPARE `prepare_s`.
    `erase_fault` is "", "aborts" (fails at once), "breaks" (erases half, then aborts) or "keeps" (reports
    success but erases nothing). With `is_sticky`, DISABLE never removes a password."""

    state: int = 0
    normal_word: int = 1
    enhanced_word: int = 0
    erase_s: float = 0.0
    prepare_s: float = 0.0
    erase_fault: str = ""
    is_sticky: bool = False


class DriveLock:
    """The drive's security state. `note` writes a line into the drive's log; `erase` frees some contents."""

    def __init__(
        self, wishes: LockConfig, note: Callable[[str], None], erase: Callable[[float], None]
    ) -> None:
        self._wishes, self._note, self._erase = wishes, note, erase
        self.word = wishes.state
        self._password = _OTHER_PASSWORD if wishes.state & ENABLED else b""
        self._tries, self._is_prepared = _MAX_TRIES, False

    @property
    def is_locked(self) -> bool:
        return bool(self.word & LOCKED)

    def lose_power(self) -> None:
        self._tries, self._is_prepared = _MAX_TRIES, False
        self.word &= ~(FROZEN | EXPIRED)
        if self.word & ENABLED:
            self.word |= LOCKED

    def cancel_prepared_erase(self) -> None:
        """Cancel a prepared erase because another command has arrived."""
        self._is_prepared = False

    def run_command(self, command: int, page: bytes) -> bool:
        """Run one of `COMMANDS` with a data page and return whether the drive accepts the command."""
        was_prepared, self._is_prepared = self._is_prepared, False
        if not self.word & SUPPORTED or (self.word & FROZEN and command != _FREEZE):
            return False
        if command == _PREPARE:
            self._note("prepared")
            time.sleep(self._wishes.prepare_s)
            self._is_prepared = True
            return True
        if command == _FREEZE:
            self.word |= FROZEN * (not self.is_locked)
            return not self.is_locked
        if len(page) != 512:
            return False
        if command == _SET:
            return self._set_password(page)
        if command == _ERASE:
            return was_prepared and self._accepts_password(page) and self._erase_all(page)
        return self._unlock_drive(page) if command == _UNLOCK else self._disable_password(page)

    def _set_password(self, page: bytes) -> bool:
        first = int.from_bytes(page[:2], "little")
        if self.is_locked or first & _IS_MASTER:
            return False
        self._password = page[2:34].rstrip(b"\0")
        self.word |= ENABLED
        level = "maximum" if first & _IS_MAXIMUM else "high"
        self._note(f"password {self._password.decode(errors='replace')}, {level}")
        return True

    def _accepts_password(self, page: bytes) -> bool:
        if not self.word & ENABLED or self.word & EXPIRED:
            return False
        if page[2:34].rstrip(b"\0") == self._password and not page[0] & _IS_MASTER:
            return True
        self._tries -= 1
        self.word |= EXPIRED * (self._tries == 0)
        return False

    def _unlock_drive(self, page: bytes) -> bool:
        if not self._accepts_password(page):
            return False
        self.word &= ~LOCKED
        self._note("unlocked")
        return True

    def _disable_password(self, page: bytes) -> bool:
        if self.is_locked or self._wishes.is_sticky or not self._accepts_password(page):
            return False
        self._clear_password()
        self._note("disabled")
        return True

    def _clear_password(self) -> None:
        self._password, self.word = b"", self.word & ~(ENABLED | LOCKED)

    def _erase_all(self, page: bytes) -> bool:
        is_enhanced, fault = bool(page[0] & _IS_ENHANCED), self._wishes.erase_fault
        if fault == "aborts" or (is_enhanced and not self.word & ENHANCED):
            return False
        self._note("enhanced erase begins" if is_enhanced else "erase begins")
        time.sleep(self._wishes.erase_s)
        if fault == "breaks":
            self._erase(0.5)
            return False
        if fault != "keeps":
            self._erase(1.0)
            self._clear_password()
            self._note("erased")
        return True
