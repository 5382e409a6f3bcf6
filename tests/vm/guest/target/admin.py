"""The target's Admin and Fabrics commands."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.vm.guest.target.drive import CONTROLLER, TargetDrive
from tests.vm.guest.target.identify import VERSION, build_identify_page
from tests.vm.guest.target.logs import build_log_page
from tests.vm.guest.target.pdus import NvmeCommand
from tests.vm.guest.target.statuses import INVALID_FIELD, INVALID_OPCODE, Status

_PROPERTY_SET, _CONNECT, _PROPERTY_GET = 0x00, 0x01, 0x04
_CAPABILITIES, _VERSION, _CONFIGURATION, _STATUS = 0x00, 0x08, 0x14, 0x1C
# 128 queue entries, contiguous queues, 10 s until ready, the NVM command set.
_CAP = 127 | 1 << 16 | 20 << 24 | 1 << 37
_GET_LOG, _IDENTIFY, _ABORT, _SET, _GET, _SANITIZE = 0x02, 0x06, 0x08, 0x09, 0x0A, 0x84
EVENT, _MANAGEMENT, _ATTACHMENT, _KEEP_ALIVE, FABRICS = 0x0C, 0x0D, 0x15, 0x18, 0x7F
_QUEUES, _EVENTS = 0x07, 0x0B
_MAX_QUEUES = 2


@dataclass(frozen=True)
class Answer:
    """The answer to a command: data, and the result in the completion."""

    data: bytes = b""
    result: int = 0


class TargetController:
    """One association with a host: its properties and features."""

    def __init__(self, drive: TargetDrive) -> None:
        self.drive = drive
        self._configuration = 0
        # The host has enabled notices about namespace changes.
        self.tells_changes = False

    def execute_fabrics(self, command: NvmeCommand) -> Answer:
        kind = command.raw[4]
        if kind == _CONNECT:
            return Answer(result=CONTROLLER)
        offset = int.from_bytes(command.raw[44:48], "little")
        if kind == _PROPERTY_SET:
            if offset == _CONFIGURATION:
                self._configuration = int.from_bytes(command.raw[48:56], "little")
            return Answer()
        if kind == _PROPERTY_GET:
            return Answer(result=self._read_property(offset))
        raise Status(INVALID_OPCODE)

    def _read_property(self, offset: int) -> int:
        is_ready, is_ending = self._configuration & 1, self._configuration >> 14 & 3
        known = {
            _CAPABILITIES: _CAP,
            _VERSION: VERSION,
            _CONFIGURATION: self._configuration,
            _STATUS: is_ready | (2 << 2 if is_ending else 0),
        }
        if offset not in known:
            raise Status(INVALID_FIELD)
        return known[offset]

    def execute_admin(self, command: NvmeCommand) -> Answer:
        """Execute an admin command; raise Status to refuse."""
        first, second = command.fields[:2]
        if command.opcode == _IDENTIFY:
            return Answer(build_identify_page(self.drive, first & 0xFF, command.namespace, first >> 16))
        if command.opcode == _GET_LOG:
            length = ((second & 0xFFFF) << 16 | first >> 16) * 4 + 4
            return Answer(build_log_page(self.drive, first & 0xFF)[:length].ljust(length, b"\0"))
        if command.opcode in (_SET, _GET):
            return self._handle_feature(first & 0xFF, second, is_set=command.opcode == _SET)
        if command.opcode == _MANAGEMENT:
            return self._manage_namespace(first & 0xF, command)
        if command.opcode == _SANITIZE:
            self.drive.sanitizing.start_sanitize(first)
            return Answer()
        if command.opcode == _ATTACHMENT:
            return self._attach_namespace(first & 0xF, command)
        if command.opcode == _ABORT:
            return Answer(result=1)
        if command.opcode == _KEEP_ALIVE:
            return Answer()
        raise Status(INVALID_OPCODE)

    def _handle_feature(self, number: int, value: int, *, is_set: bool) -> Answer:
        if number == _QUEUES:
            most = min((value & 0xFFFF) + 1, _MAX_QUEUES) - 1
            return Answer(result=most << 16 | most)
        if number == _EVENTS and is_set:
            self.tells_changes = bool(value & 1 << 8)
            return Answer()
        raise Status(INVALID_FIELD)

    def _manage_namespace(self, what: int, command: NvmeCommand) -> Answer:
        if what == 1:
            self.drive.delete_namespace(command.namespace)
            return Answer()
        if what or len(command.data) < 384:
            raise Status(INVALID_FIELD)
        size, capacity = struct.unpack_from("<2Q", command.data)
        sharing = command.data[30]
        return Answer(result=self.drive.create_namespace(size, capacity, command.data[26], sharing))

    def _attach_namespace(self, what: int, command: NvmeCommand) -> Answer:
        count, controller = struct.unpack_from("<2H", command.data)
        if what > 1 or (count, controller) != (1, CONTROLLER):
            raise Status(INVALID_FIELD)
        self.drive.set_attached(command.namespace, attached=what == 0)
        return Answer()
