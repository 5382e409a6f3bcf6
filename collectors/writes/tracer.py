"""Tracer of writes by class: which devices it watches, and its absolute counters."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence

from opwatch.collectors.block.blk import explain_probe_error
from opwatch.collectors.writes.kernel_functions import find_function_addresses
from opwatch.errors import TracerMissing, UsageError
from opwatch.host.device import BlockDevice
from opwatch.trace.programs import load_first
from opwatch.writes.classes import (
    END_FUNCTIONS,
    MAX_TARGETS,
    WRITE_PROGRAMS,
    TargetWrites,
    WriteCount,
    WriteGroup,
    WriteTarget,
    decode_counts,
    decode_groups,
    encode_end_functions,
    encode_targets,
)
from opwatch.writes.processes import decode_processes
from opwatch.writes.reading import ProcessBytes, WriteProcess

_LAST_SECTOR = (1 << 63) - 1
_JOURNAL_PROGRAM = "journal_committed"
# Every program set would fail for the same reason.
_FINAL = (errno.EPERM, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
HIDDEN_FUNCTIONS = (
    "the kernel hides the addresses of its functions (sysctl kernel.kptr_restrict), so classes follow from "
    "flags and pages: journal and metadata can be confused"
)


def make_write_target(device: BlockDevice, *, has_filesystem: bool) -> WriteTarget:
    """Return the target for a disk or partition. A disk has no end, because it can grow."""
    first, last = device.sector_range if device.is_partition else (0, _LAST_SECTOR)
    return WriteTarget(device.disk.dev, device.dev, first, last + 1, has_filesystem)


class WriteTracer:
    """Counts the writes to devices, attached from construction until close().

    `notes` are sentences about what is less certain on this machine. `journal_reason` explains why jbd2's
    commits are not counted; None if they are.
    """

    def __init__(
        self,
        devices: Sequence[BlockDevice],
        *,
        has_filesystem: bool,
        by_cgroup: bool = False,
        by_process: bool = False,
    ) -> None:
        if len(devices) > MAX_TARGETS:
            raise UsageError(f"{len(devices)} devices are too many to trace: the limit is {MAX_TARGETS}")
        try:
            from opwatch._native import ProbeError, Writes
        except ImportError as error:
            raise TracerMissing from error
        addresses = find_function_addresses(END_FUNCTIONS.keys())
        self.notes: Sequence[str] = () if addresses else (HIDDEN_FUNCTIONS,)
        targets = encode_targets([make_write_target(one, has_filesystem=has_filesystem) for one in devices])
        functions = encode_end_functions(addresses)
        try:
            self._native, _ = load_first(
                WRITE_PROGRAMS,
                lambda way: Writes(targets, functions, way, groups=by_cgroup, processes=by_process),
                ProbeError,
                _FINAL,
            )
        except ProbeError as error:
            raise explain_probe_error(error) from error
        failed = dict(self._native.attached()).get(_JOURNAL_PROGRAM, 0)
        self.journal_reason = f"jbd2's event of commits: {os.strerror(failed)}" if failed else None

    def read_counts(self) -> tuple[TargetWrites, ...]:
        """Return the counters of each device, in the order of construction."""
        return decode_counts(self._native.counts())

    def read_groups(self) -> Mapping[WriteGroup, WriteCount]:
        """Return the counters by control group; empty without `by_cgroup`."""
        return decode_groups(self._native.groups())

    def read_processes(self) -> Mapping[WriteProcess, ProcessBytes]:
        """Return the bytes that each process submitted directly; empty without `by_process`."""
        return decode_processes(self._native.processes())

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) of each program."""
        return self._native.programs()

    def count_missed_runs(self) -> int:
        """Return the program runs skipped by the kernel because of another run on the same CPU."""
        return sum(program[4] for program in self._native.programs())

    def close(self) -> None:
        self._native.close()
