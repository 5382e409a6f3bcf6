"""The drive behind the target: its capacity, its namespaces, and its byte counts."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.vm.guest.target.sanitize import TargetSanitize
from tests.vm.guest.target.statuses import INVALID_FIELD, INVALID_NAMESPACE, Status

BLOCK = 512
SERIAL, MODEL = "OPWNSM0001", "opwatch namespace target"
CONTROLLER = 1
MAX_NAMESPACES = 4
NO_CAPACITY, NO_IDENTIFIER, IS_ATTACHED, NOT_ATTACHED = 0x115, 0x116, 0x118, 0x11A


@dataclass
class TargetNamespace:
    """One namespace, in blocks, with a sparse file as its contents. `guid` is unique."""

    size: int
    capacity: int
    lba_format: int
    guid: int
    file: int
    is_attached: bool = False
    sharing: int = 0


@dataclass
class TargetDrive:
    """The whole drive. Each completed change to a namespace is logged, one line per command; the file
    `orders` lists the commands that must fail or wait."""

    capacity: int
    log: Path
    orders: Path
    controllers: int = 1
    namespaces: dict[int, TargetNamespace] = field(default_factory=dict)
    written: int = 0
    read: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    changed: set[int] = field(default_factory=set)
    made: int = 0
    sanitizing: TargetSanitize = field(init=False)

    def __post_init__(self) -> None:
        self.sanitizing = TargetSanitize(
            self.orders, self.lock, lambda: [one.file for one in self.namespaces.values()], self.log_action
        )

    @property
    def free_bytes(self) -> int:
        """Bytes that belong to no namespace."""
        return self.capacity - sum(one.capacity * BLOCK for one in self.namespaces.values())

    def create_namespace(self, size: int, capacity: int, lba_format: int, sharing: int = 0) -> int:
        self._follow_orders("create")
        if not size or size != capacity or lba_format:
            raise Status(INVALID_FIELD)
        if capacity * BLOCK > self.free_bytes:
            raise Status(NO_CAPACITY)
        free = [number for number in range(1, MAX_NAMESPACES + 1) if number not in self.namespaces]
        if not free:
            raise Status(NO_IDENTIFIER)
        self.made += 1
        file = os.memfd_create("namespace")
        os.ftruncate(file, size * BLOCK)
        new = TargetNamespace(size, capacity, lba_format, self.made, file, sharing=sharing)
        self.namespaces[free[0]] = new
        self._log_blocks("create", free[0], size)
        return free[0]

    def delete_namespace(self, number: int) -> None:
        self._follow_orders("delete")
        gone = self.find_namespace(number)
        os.close(gone.file)
        del self.namespaces[number]
        if gone.is_attached:
            self.changed.add(number)
        self._log_blocks("delete", number, gone.size)

    def set_attached(self, number: int, *, attached: bool) -> None:
        self._follow_orders("attach" if attached else "detach")
        one = self.find_namespace(number)
        if one.is_attached == attached:
            raise Status(IS_ATTACHED if attached else NOT_ATTACHED)
        one.is_attached = attached
        self.changed.add(number)
        self._log_blocks("attach" if attached else "detach", number, one.size)

    def find_namespace(self, number: int, *, is_active: bool = False) -> TargetNamespace:
        one = self.namespaces.get(number)
        if one is None or (is_active and not one.is_attached):
            raise Status(INVALID_NAMESPACE)
        return one

    def _follow_orders(self, what: str) -> None:
        """Wait while the orders hold this command, and fail if ordered."""
        self.sanitizing.require_no_sanitize()
        while True:
            orders = json.loads(self.orders.read_text())
            if what not in orders["hold"]:
                break
            self.orders.with_suffix(f".{what}").touch()
            time.sleep(0.02)
        if orders["fail"].get(what):
            failures = orders["fail"][what]
            status = failures.pop(0)
            self.orders.write_text(json.dumps(orders))
            if status:
                raise Status(status)

    def _log_blocks(self, what: str, number: int, size: int) -> None:
        self.log_action(what, number, size * BLOCK)

    def log_action(self, what: str, number: int, n_bytes: int) -> None:
        line = {"what": what, "namespace": number, "bytes": n_bytes, "free": self.free_bytes}
        with self.log.open("a") as log:
            log.write(json.dumps(line) + "\n")
