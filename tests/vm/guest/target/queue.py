"""A queue of the target: a connection from the host with commands and data."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from dataclasses import replace

from tests.vm.guest.target.admin import EVENT, FABRICS, Answer, TargetController
from tests.vm.guest.target.drive import BLOCK, TargetNamespace
from tests.vm.guest.target.pdus import (
    NvmeCommand,
    Pdu,
    encode_completion,
    encode_data,
    encode_initialized,
    encode_ready,
    parse_command,
    parse_data_header,
    receive_pdu,
)
from tests.vm.guest.target.statuses import INVALID_OPCODE, OUT_OF_RANGE, Status

_FLUSH, _WRITE, _READ, _ZEROES, _DATASET = 0x00, 0x01, 0x02, 0x08, 0x09
_RANGE = struct.Struct("<IIQ")
# linux/falloc.h: punch a hole, and keep the size.
_PUNCH = 0x03
_LIBC = ctypes.CDLL(None, use_errno=True)
# The notice that namespaces have changed, and the log page that lists them.
_NOTICE = 0x2 | 0x04 << 16


def _deallocate_blocks(one: TargetNamespace, begin: int, blocks: int) -> None:
    if begin + blocks > one.size:
        raise Status(OUT_OF_RANGE)
    offset, length = ctypes.c_longlong(begin * BLOCK), ctypes.c_longlong(blocks * BLOCK)
    if _LIBC.fallocate(one.file, _PUNCH, offset, length):
        raise OSError(ctypes.get_errno(), "fallocate")


class TargetQueue(threading.Thread):
    """One connection, served until the host closes it."""

    def __init__(self, connection: socket.socket, controllers: list[TargetController]) -> None:
        super().__init__(daemon=True)
        self._connection, self._controllers = connection, controllers
        self._queue = 0
        self._waiting: dict[int, tuple[NvmeCommand, bytearray]] = {}
        self._events: list[int] = []
        self._controller: TargetController | None = None

    def run(self) -> None:
        try:
            receive_pdu(self._connection)
            self._connection.sendall(encode_initialized())
            while True:
                kind, body, data = receive_pdu(self._connection)
                if kind == Pdu.COMMAND:
                    self._start_command(parse_command(body, data))
                elif kind == Pdu.FROM_HOST:
                    self._store_data(body, data)
        except (EOFError, OSError):
            self._connection.close()

    def _start_command(self, command: NvmeCommand) -> None:
        """Execute a command, or first request the write's data."""
        is_write = command.opcode & 3 == 1 and command.opcode != FABRICS
        if is_write and command.length and not command.is_in_capsule:
            self._waiting[command.tag] = (command, bytearray(command.length))
            self._connection.sendall(encode_ready(command.tag, command.length))
        else:
            self._complete_command(command, command.data)

    def _store_data(self, body: bytes, data: bytes) -> None:
        tag, offset = parse_data_header(body)
        command, kept = self._waiting[tag]
        kept[offset : offset + len(data)] = data
        if offset + len(data) == command.length:
            del self._waiting[tag]
            self._complete_command(command, bytes(kept))

    def _complete_command(self, command: NvmeCommand, data: bytes) -> None:
        if command.opcode == EVENT and not self._queue:
            self._events.append(command.tag)
            return self._notify_host()
        status = 0
        try:
            answer = self._execute_command(command, data)
        except Status as refused:
            answer, status = Answer(), refused.number
        if answer.data:
            self._connection.sendall(encode_data(command.tag, answer.data))
        self._connection.sendall(encode_completion(command.tag, self._queue, status, answer.result))
        return self._notify_host()

    def _notify_host(self) -> None:
        """Notify a waiting host of changed namespaces."""
        controller = self._controller
        if not controller or not controller.tells_changes:
            return
        if self._events and controller.drive.changed:
            self._connection.sendall(encode_completion(self._events.pop(), 0, 0, _NOTICE))

    def _execute_command(self, command: NvmeCommand, data: bytes) -> Answer:
        if command.opcode == FABRICS:
            return self._execute_fabrics(command)
        assert self._controller
        command = replace(command, data=data)
        if not self._queue:
            return self._controller.execute_admin(command)
        return self._execute_io(self._controller, command)

    def _execute_fabrics(self, command: NvmeCommand) -> Answer:
        """The admin queue creates a controller; later queues attach to it."""
        if command.raw[4] == 0x01:
            self._queue = int.from_bytes(command.raw[42:44], "little")
            if not self._queue:
                self._controllers.append(TargetController(self._controllers[0].drive))
            self._controller = self._controllers[-1]
        assert self._controller
        return self._controller.execute_fabrics(command)

    def _execute_io(self, controller: TargetController, command: NvmeCommand) -> Answer:
        drive, fields = controller.drive, command.fields
        one = drive.find_namespace(command.namespace, is_active=True)
        drive.sanitizing.require_no_sanitize()
        if command.opcode == _FLUSH:
            return Answer()
        if command.opcode == _DATASET:
            for place in range((fields[0] & 0xFF) + 1):
                _, blocks, begin = _RANGE.unpack_from(command.data, place * _RANGE.size)
                _deallocate_blocks(one, begin, blocks)
            return Answer()
        begin, blocks = fields[1] << 32 | fields[0], (fields[2] & 0xFFFF) + 1
        if begin + blocks > one.size:
            raise Status(OUT_OF_RANGE)
        if command.opcode == _ZEROES:
            _deallocate_blocks(one, begin, blocks)
        elif command.opcode == _WRITE:
            os.pwrite(one.file, command.data, begin * BLOCK)
            with drive.lock:
                drive.written += blocks * BLOCK
        elif command.opcode == _READ:
            with drive.lock:
                drive.read += blocks * BLOCK
            return Answer(os.pread(one.file, blocks * BLOCK, begin * BLOCK))
        else:
            raise Status(INVALID_OPCODE)
        return Answer()
