"""Mirror of tools/broker/protocol.h: one packet per request and one per reply."""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import NamedTuple

from opwatch.collectors.block.blk import Plan
from opwatch.errors import OpwatchError
from opwatch.trace import abi
from opwatch.trace.programs import ProgramSet

VERSION = 1
SOCKET = "/run/opwatch/broker.sock"
EVICTED_OWNERS = 0xFFFFFFFF
OWNER_BYTES = 136


class RequestKind(enum.IntEnum):
    """enum ow_request_kind."""

    HELLO = 1
    OPEN_TRACER = 2
    CLOSE_TRACER = 3
    READ_SAMPLE = 4
    READ_OWNERS = 5
    EVICT_OWNERS = 6
    READ_PROGRAMS = 7
    GET_LOG = 8
    IDENTIFY = 9
    RUN_SMARTCTL = 10


_HEADER = struct.Struct("=HHI")
_OPEN = struct.Struct("=8I")
_TRACER = struct.Struct("=4I")
_EVICT = struct.Struct("=4IQ")
_DRIVE = struct.Struct("=5IHBx")
_TARGET_BYTES, _DISK_KEY_BYTES = 48, 24
_PROGRAM = struct.Struct("=32s48sI")
_MAX_PROGRAMS = 32
_REPLY = struct.Struct("=4I")
_HELLO = struct.Struct("=4IQ24s")
_OPENED = struct.Struct("=4I")
_PROGRAM_INFO = struct.Struct("=32sI4xQQQ")
_PACKED_SAMPLE = struct.Struct("=QQII")
_OP_BYTES = (abi.SAMPLE_BYTES - 16) // len(abi.OPS)
_IDLE_OP = bytes(_OP_BYTES)
REPLY_MAX_BYTES = _REPLY.size + _PACKED_SAMPLE.size + len(abi.OPS) * _OP_BYTES


class Reply(NamedTuple):
    """struct ow_reply with its data. `error` is 0 or an errno."""

    tag: int
    error: int
    status: int
    data: bytes


class Hello(NamedTuple):
    """struct ow_hello."""

    version: int
    sample_bytes: int
    op_bytes: int
    owner_bytes: int
    capabilities: int
    release: str


class OpenedTracer(NamedTuple):
    """struct ow_opened, with the handle of the tracer."""

    handle: int
    lanes: int
    cpus: int
    max_owners: int
    throttle_error: int


def _decode_text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def _iter_entries(layout: struct.Struct, raw: bytes) -> Iterator[tuple[int | bytes, ...]]:
    try:
        return layout.iter_unpack(raw)
    except struct.error as error:
        raise OpwatchError("opwatch-broker sent a reply of a wrong length") from error


def decode_reply(packet: bytes) -> Reply:
    """Decode a packet from the broker. Raise OpwatchError if it is no reply."""
    if len(packet) < _REPLY.size:
        raise OpwatchError("opwatch-broker sent an incomplete reply")
    tag, error, status, length = _REPLY.unpack_from(packet)
    if len(packet) != _REPLY.size + length:
        raise OpwatchError("opwatch-broker sent a reply of a wrong length")
    return Reply(tag, error, status, packet[_REPLY.size :])


def decode_hello(raw: bytes) -> Hello:
    if len(raw) != _HELLO.size:
        raise OpwatchError("opwatch-broker is of another version: restart it after an upgrade of opwatch")
    version, sample_bytes, op_bytes, owner_bytes, capabilities, release = _HELLO.unpack(raw)
    hello = Hello(version, sample_bytes, op_bytes, owner_bytes, capabilities, _decode_text(release))
    if hello[:4] != (VERSION, abi.SAMPLE_BYTES, _OP_BYTES, OWNER_BYTES):
        raise OpwatchError(
            f"opwatch-broker {hello.release} is of another version: restart it after an upgrade of opwatch"
        )
    return hello


def decode_opened(reply: Reply) -> OpenedTracer:
    if len(reply.data) != _OPENED.size:
        raise OpwatchError("opwatch-broker sent a reply of a wrong length")
    return OpenedTracer(reply.status, *_OPENED.unpack(reply.data))


def decode_programs(raw: bytes) -> list[tuple[str, int, int, int, int]]:
    """Return (name, id, runs, run_ns, recursion misses) per program, as opwatch._native does."""
    programs = []
    for name, *numbers in _iter_entries(_PROGRAM_INFO, raw):
        assert isinstance(name, bytes)
        number, runs, run_ns, misses = map(int, numbers)
        programs.append((_decode_text(name), number, runs, run_ns, misses))
    return programs


def unpack_sample(raw: bytes) -> bytes:
    """Return a struct ow_sample: the packed form leaves out idle operations."""
    if len(raw) < _PACKED_SAMPLE.size:
        raise OpwatchError("opwatch-broker sent an incomplete sample")
    begin_ns, end_ns, present, _ = _PACKED_SAMPLE.unpack_from(raw)
    if len(raw) != _PACKED_SAMPLE.size + present.bit_count() * _OP_BYTES:
        raise OpwatchError("opwatch-broker sent an incomplete sample")
    parts, at = [struct.pack("=QQ", begin_ns, end_ns)], _PACKED_SAMPLE.size
    for op in range(len(abi.OPS)):
        if present >> op & 1:
            parts.append(raw[at : at + _OP_BYTES])
            at += _OP_BYTES
        else:
            parts.append(_IDLE_OP)
    return b"".join(parts)


def pack_request(kind: RequestKind, tag: int, arguments: bytes = b"") -> bytes:
    return _HEADER.pack(VERSION, kind, tag) + arguments


def pack_open(plan: Plan, programs: ProgramSet, *, queue_time: bool, by: int) -> bytes:
    """Return the arguments of OPEN_TRACER."""
    targets = abi.pack_targets(plan.targets)
    specs = b"".join(
        _PROGRAM.pack(program.name.encode(), program.needs.encode(), program.attachment)
        for program in programs
    )
    counts = _OPEN.pack(
        len(plan.targets),
        len(plan.disk_keys) // _DISK_KEY_BYTES,
        plan.stamps,
        plan.bios,
        len(programs),
        queue_time,
        by,
        0,
    )
    return b"".join(
        (
            counts,
            targets.ljust(abi.MAX_TARGETS * _TARGET_BYTES, b"\0"),
            plan.disk_keys.ljust(abi.MAX_TARGETS * _DISK_KEY_BYTES, b"\0"),
            specs.ljust(_MAX_PROGRAMS * _PROGRAM.size, b"\0"),
        )
    )


def pack_tracer(handle: int, target: int = 0, offset: int = 0) -> bytes:
    return _TRACER.pack(handle, target, offset, 0)


def pack_evict(handle: int, keep: int, max_kept: int, idle_ns: int) -> bytes:
    return _EVICT.pack(handle, keep, max_kept, 0, idle_ns)


def pack_drive(
    dev: tuple[int, int],
    number: int = 0,
    length: int = 0,
    *,
    nsid: int = 0,
    lsi: int = 0,
    uuid_index: int = 0,
) -> bytes:
    return _DRIVE.pack(*dev, number, length, nsid, lsi, uuid_index)
