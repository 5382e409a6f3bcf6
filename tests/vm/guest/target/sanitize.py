"""The target's sanitize: capabilities, progress and outcome. The orders set duration and result."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from tests.vm.guest.target.statuses import (
    INVALID_FIELD,
    INVALID_OPCODE,
    SANITIZE_FAILED,
    SANITIZE_UNDER_WAY,
    Status,
)

CRYPTO, BLOCK, OVERWRITE = 1, 2, 4
# Capability bit (SANICAP) that each kind (SANACT) requires.
_REQUIRED_BITS = {2: BLOCK, 3: OVERWRITE, 4: CRYPTO}
_NEVER, _DONE, _UNDER_WAY, _FAILED = 0, 1, 2, 3
_NO_DEALLOCATE = 1 << 9
# linux/falloc.h: punch a hole, and keep the size.
_PUNCH = 0x03
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class SanitizeOrders:
    """The orders for sanitizes: SANICAP, the duration, and whether they fail."""

    offers: int = CRYPTO | BLOCK
    seconds: float = 2.0
    fails: bool = False


class TargetSanitize:
    """The sanitize state. Each query first updates the state if a sanitize has ended. `files` are the
    contents of all namespaces, and `note` writes into the target's log."""

    def __init__(
        self,
        orders: Path,
        lock: threading.RLock,
        files: Callable[[], Collection[int]],
        note: Callable[[str, int, int], None],
    ) -> None:
        self._orders, self._lock, self._files, self._note = orders, lock, files, note
        self._state, self._order, self._begun = _NEVER, 0, 0.0

    def read_orders(self) -> SanitizeOrders:
        return SanitizeOrders(**json.loads(self._orders.read_text()).get("sanitize", {}))

    def start_sanitize(self, order: int) -> None:
        """Start a sanitize from the command's dword 10."""
        with self._lock:
            self._finish_if_due()
            orders = self.read_orders()
            if not orders.offers:
                raise Status(INVALID_OPCODE)
            if self._state == _UNDER_WAY:
                raise Status(SANITIZE_UNDER_WAY)
            if not orders.offers & _REQUIRED_BITS.get(order & 7, 0) or order & _NO_DEALLOCATE:
                raise Status(INVALID_FIELD)
            self._state, self._order, self._begun = _UNDER_WAY, order, time.monotonic()
            self._note("sanitize", order & 7, self._count_allocated_bytes())

    def require_no_sanitize(self) -> None:
        """Raise Status while reads, writes and changes are refused."""
        with self._lock:
            self._finish_if_due()
            if self._state in (_UNDER_WAY, _FAILED):
                raise Status(SANITIZE_UNDER_WAY if self._state == _UNDER_WAY else SANITIZE_FAILED)

    def encode_page(self) -> bytes:
        """Return the Sanitize Status log page."""
        with self._lock:
            self._finish_if_due()
            orders = self.read_orders()
            if not orders.offers:
                raise Status(INVALID_FIELD)
            page, ratio = bytearray(512), 65535
            if self._state == _UNDER_WAY:
                ratio = min(int(65536 * (time.monotonic() - self._begun) / orders.seconds), 65535)
            page[0:2] = ratio.to_bytes(2, "little")
            page[2:4] = self._state.to_bytes(2, "little")
            page[4:8] = self._order.to_bytes(4, "little")
            page[8:32] = b"\xff" * 24
            page[12:16] = max(round(orders.seconds), 1).to_bytes(4, "little")
            return bytes(page)

    def _finish_if_due(self) -> None:
        if self._state != _UNDER_WAY:
            return
        orders = self.read_orders()
        if time.monotonic() - self._begun < orders.seconds:
            return
        self._state = _FAILED if orders.fails else _DONE
        if self._state == _DONE:
            for file in self._files():
                length = ctypes.c_longlong(os.fstat(file).st_size)
                if _LIBC.fallocate(file, _PUNCH, ctypes.c_longlong(0), length):
                    raise OSError(ctypes.get_errno(), "fallocate")
        self._note("failed" if orders.fails else "sanitized", self._order & 7, self._count_allocated_bytes())

    def _count_allocated_bytes(self) -> int:
        """Return the allocated bytes of all namespaces."""
        return sum(os.fstat(file).st_blocks * 512 for file in self._files())
