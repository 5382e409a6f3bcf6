"""Tracer of the bytes that programs write to one file system."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opwatch.collectors.writes.kernel_functions import find_function_addresses
from opwatch.errors import Unsupported
from opwatch.host.usage import Mount
from opwatch.trace.programs import load_first
from opwatch.writes.application import (
    APPLICATION_PROGRAMS,
    BUFFERED_FUNCTIONS,
    F2FS_IOMAP,
    ApplicationWrites,
    decode_application,
    is_mapped_counted,
)
from opwatch.writes.classes import encode_device_number
from opwatch.writes.processes import decode_processes
from opwatch.writes.reading import ProcessBytes, WriteProcess

if TYPE_CHECKING:
    from opwatch._native import Writes


class ApplicationTracer:
    """Counts what programs write to the files of a mount's file system, from construction until close()."""

    def __init__(self, mount: Mount, *, by_process: bool = False) -> None:
        """Raise Unsupported, with the reason, if this kernel or file system cannot be counted."""
        self._native = _load_programs(_find_buffered_function(mount.filesystem), mount, by_process=by_process)
        self._counts_mapped = is_mapped_counted(self._native.attached())

    def read_counts(self) -> ApplicationWrites:
        return decode_application(self._native.application(), counts_mapped=self._counts_mapped)

    def read_processes(self) -> Mapping[WriteProcess, ProcessBytes]:
        """Return the bytes that the page cache took from each process; empty without `by_process`."""
        return decode_processes(self._native.processes())

    def count_missed_runs(self) -> int:
        """Return the program runs skipped by the kernel because of another run on the same CPU."""
        return sum(program[4] for program in self._native.programs())

    def close(self) -> None:
        self._native.close()


def _find_buffered_function(filesystem: str) -> str:
    function = BUFFERED_FUNCTIONS.get(filesystem)
    if function is None:
        known = ", ".join(sorted(BUFFERED_FUNCTIONS))
        raise Unsupported(f"the writes of programs are counted on {known}, not on {filesystem}")
    if filesystem == "f2fs" and not find_function_addresses({F2FS_IOMAP}):
        raise Unsupported("direct writes to f2fs cannot be counted before Linux 5.17")
    return function


def _load_programs(function: str, mount: Mount, *, by_process: bool) -> Writes:
    from opwatch._native import ProbeError, Writes

    major, minor = map(int, mount.dev.split(":"))
    super_block = encode_device_number((major, minor))
    try:
        native, _ = load_first(
            APPLICATION_PROGRAMS,
            lambda way: Writes(
                b"", b"", way, super_block=super_block, buffered=function, processes=by_process
            ),
            ProbeError,
            (),
        )
    except ProbeError as error:
        raise Unsupported(_explain_refusal(error.args[0], function)) from error
    return native


def _explain_refusal(number: int, function: str) -> str:
    if number in (errno.ESRCH, errno.ENOENT):
        return f"the kernel has no type information for {function}()"
    # The tracer of classes is loaded before, so that privileges are not missing.
    return f"the kernel refuses programs at the end of functions (fexit): {os.strerror(number)}"
