"""The discard programs in the kernel, before anything is known of the devices. Little is imported here: what
loads them does so as early as it can."""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

from opwatch.errors import OpwatchError, TracerMissing
from opwatch.frozen import replace
from opwatch.trace.programs import Way, first_loaded
from opwatch.trim.audit.programs import Following, chosen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from opwatch._native import Discards

SECTOR = 512
_GRANULE = struct.Struct("=16sII")
# This folder is there while device mapper is.
_MAPPER = Path("/sys/module/dm_mod")


def loader(following: Following, *, stalls: bool = False) -> Callable[[], Discards]:
    """What loads the programs and attaches nothing. `stalls`: time reads and writes that are issued behind
    discards."""
    try:
        from opwatch._native import Discards, ProbeError, may_attach_to_functions
    except ImportError as error:
        raise TracerMissing from error
    following = replace(following, clones=_MAPPER.is_dir())
    without = chosen(replace(following, functions=False))
    ways: list[Way] = [without]
    # Functions that can be attached to may still be refused for what ours do.
    if following.functions and may_attach_to_functions():
        ways.insert(0, chosen(following))
    namespace = Path("/proc/self/ns/pid").stat()
    # The kernel's own packing of a device number.
    dev = os.major(namespace.st_dev) << 20 | os.minor(namespace.st_dev)

    def load_way(way: Way) -> Discards:
        return Discards(dev, namespace.st_ino, way, stalls=stalls)

    def load() -> Discards:
        try:
            return first_loaded(ways, load_way, ProbeError, {errno.ENOMEM})[0]
        except ProbeError as error:
            raise explained(error) from error

    return load


def explained(error: Exception) -> OpwatchError:
    """The error that tells the user what to do about a ProbeError."""
    from opwatch.collectors.block.blk import explain_probe_error  # for this case alone

    return explain_probe_error(error)


def pack_granule(disk: str, granule_bytes: int, offset_bytes: int) -> bytes:
    """struct ow_granule: where the whole granules of a disk begin and how long they are."""
    name = disk.encode()[:16].ljust(16, b"\0")
    return _GRANULE.pack(name, granule_bytes // SECTOR, offset_bytes // SECTOR)


class Loading:
    """Programs of loader() that are being loaded in a thread: it takes its time, in which we can look at the
    devices. All of Python's own part is done before, for a thread waits long for the interpreter."""

    def __init__(self, load: Callable[[], Discards]) -> None:
        self._load = load
        self._loaded: Discards | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loaded = self._load()
        except Exception as error:
            self._error = error

    def programs(self) -> Discards:
        """The programs, once they are loaded; raises what loading them raised."""
        self._thread.join()
        if self._error:
            raise self._error
        assert self._loaded
        return self._loaded

    def abandon(self) -> None:
        """Drop the programs: nobody wants them any more."""
        self._thread.join()
        if self._loaded:
            self._loaded.close()
