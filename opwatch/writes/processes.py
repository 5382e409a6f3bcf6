"""Written bytes by process, as far down as a write has one (bpf/abi/writes.h). Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.writes.groups import TABLE_FULL, sum_classes
from opwatch.writes.reading import ProcessBytes, WriteProcess, WritesReading

PROCESS = struct.Struct("=QIIQ16s")


@dataclass(frozen=True, slots=True)
class ProcessWrites:
    """What a process wrote to the page cache, and what it submitted itself. None if unknown; the process
    number is None for bytes that the table of processes has no place for."""

    name: str
    pid: int | None
    buffered_bytes: int | None
    direct_bytes: int


class ProcessTable(NamedTuple):
    """The processes, the largest first, and the bytes that the kernel wrote for all of them: write-back,
    journal and metadata. The direct bytes and these add up to the bytes of all classes."""

    processes: list[ProcessWrites]
    shared_bytes: int


def decode_processes(raw: bytes) -> dict[WriteProcess, ProcessBytes]:
    """Return the counters by process. Raise BadInput for a wrong length."""
    if len(raw) % PROCESS.size:
        raise BadInput(f"{len(raw)} bytes are not a multiple of {PROCESS.size}, the counter of a process")
    return {
        WriteProcess(start, pid): ProcessBytes(size, name.split(b"\0")[0].decode(errors="replace"))
        for start, pid, _, size, name in PROCESS.iter_unpack(raw)
    }


def compute_process_writes(begin: WritesReading, end: WritesReading) -> ProcessTable:
    """Return the bytes of each process in the interval."""
    buffered = _subtract(begin.buffered_processes, end.buffered_processes)
    direct = _subtract(begin.direct_processes, end.direct_processes)
    names = {key: one.name for key, one in (*end.direct_processes.items(), *end.buffered_processes.items())}
    is_known = end.application is not None
    processes = [
        ProcessWrites(name, key.pid, buffered.get(key, 0) if is_known else None, direct.get(key, 0))
        for key, name in names.items()
        if buffered.get(key) or direct.get(key)
    ]
    if begin.application and end.application:
        taken = end.application.subtract(begin.application).buffered_bytes
        if missing := taken - sum(buffered.values()):
            processes.append(ProcessWrites(TABLE_FULL, None, missing, 0))
    processes.sort(key=lambda one: (-(one.buffered_bytes or 0) - one.direct_bytes, one.pid or 0))
    return ProcessTable(processes, sum_classes(end) - sum_classes(begin) - sum(direct.values()))


def _subtract(
    begin: Mapping[WriteProcess, ProcessBytes], end: Mapping[WriteProcess, ProcessBytes]
) -> dict[WriteProcess, int]:
    nothing = ProcessBytes(0, "")
    return {key: one.bytes - begin.get(key, nothing).bytes for key, one in end.items()}
