"""Load the discard programs before the devices are known.

Imports little, so that loading can start as early as possible.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.errors import OpwatchError, TracerMissing
from opwatch.trace.programs import ProgramSet, load_first
from opwatch.trim.audit.programs import ProgramOptions, select_programs

if TYPE_CHECKING:
    from opwatch._native import Discards


SECTOR = 512
_GRANULE = struct.Struct("=16sII")
# This folder exists while device mapper is loaded.
_MAPPER = Path("/sys/module/dm_mod")


def make_loader(following: ProgramOptions, *, stalls: bool = False) -> Callable[[], Discards]:
    """Return a function that loads the programs without attaching them. `stalls`: time I/O issued behind
    discards."""
    try:
        from opwatch._native import Discards, ProbeError, can_attach_to_functions
    except ImportError as error:
        raise TracerMissing from error
    following = replace(following, clones=_MAPPER.is_dir())
    without = select_programs(replace(following, functions=False))
    ways: list[ProgramSet] = [without]
    # Functions that allow attaching may still be refused for the helpers in our programs.
    if following.functions and can_attach_to_functions():
        ways.insert(0, select_programs(following))
    namespace = Path("/proc/self/ns/pid").stat()
    # Kernel packing of a device number.
    dev = os.major(namespace.st_dev) << 20 | os.minor(namespace.st_dev)

    def load_variant(way: ProgramSet) -> Discards:
        return Discards(dev, namespace.st_ino, way, stalls=stalls)

    def load_programs() -> Discards:
        try:
            return load_first(ways, load_variant, ProbeError, {errno.ENOMEM})[0]
        except ProbeError as error:
            raise explain_load_error(error) from error

    return load_programs


def explain_load_error(error: Exception) -> OpwatchError:
    """Convert a ProbeError to an error with advice for the user."""
    from opwatch.collectors.block.blk import explain_probe_error  # Imported only on errors

    return explain_probe_error(error)


def pack_granule(disk: str, granule_bytes: int, offset_bytes: int) -> bytes:
    """Pack struct ow_granule: offset and length of a disk's granules."""
    name = disk.encode()[:16].ljust(16, b"\0")
    return _GRANULE.pack(name, granule_bytes // SECTOR, offset_bytes // SECTOR)


class Loading:
    """Load the programs of loader() in a thread while the caller examines the devices.

    All Python work happens before the thread starts, because a thread waits long for the interpreter lock.
    """

    def __init__(self, load: Callable[[], Discards]) -> None:
        self._load = load
        self._loaded: Discards | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._load_programs)
        self._thread.start()

    def _load_programs(self) -> None:
        try:
            self._loaded = self._load()
        except Exception as error:
            self._error = error

    def wait_for_programs(self) -> Discards:
        """Wait for the programs and return them, or raise the loader's error."""
        self._thread.join()
        if self._error:
            raise self._error
        assert self._loaded
        return self._loaded

    def abandon(self) -> None:
        """Discard the programs."""
        self._thread.join()
        if self._loaded:
            self._loaded.close()
