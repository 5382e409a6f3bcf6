"""The discard programs in the kernel, before anything is known of the devices. Little is imported here: what
loads them does so as early as it can."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.errors import OpwatchError, Unsupported

if TYPE_CHECKING:
    from opwatch._native import Discards


def load(*, functions: bool = True, stalls: bool = False, filesystem: str | None = None) -> Discards:
    """The programs, in the kernel and attached to nothing. `filesystem`: whose events are wanted, None for
    those of all."""
    try:
        from opwatch._native import Discards, ProbeError
    except ImportError as error:
        raise Unsupported(
            "this opwatch was built without its tracer; opwatch doctor says what to install"
        ) from error
    namespace = Path("/proc/self/ns/pid").stat()
    # The kernel's own packing of a device number.
    dev = os.major(namespace.st_dev) << 20 | os.minor(namespace.st_dev)
    try:
        return Discards(dev, namespace.st_ino, functions=functions, stalls=stalls, filesystem=filesystem)
    except ProbeError as error:
        raise explained(error) from error


def explained(error: Exception) -> OpwatchError:
    """ProbeError as the error that tells the user what to do."""
    from opwatch.collectors.blk import explain_probe_error  # for this case alone

    return explain_probe_error(error)


class Loading:
    """load() for one filesystem, in a thread: it takes its time, in which we can look at the devices."""

    def __init__(self, filesystem: str) -> None:
        self._filesystem = filesystem
        self._loaded: Discards | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._load)
        self._thread.start()

    def _load(self) -> None:
        try:
            self._loaded = load(filesystem=self._filesystem)
        except Exception as error:
            self._error = error

    def programs(self) -> Discards:
        """The programs, once they are loaded; raises what load() raised."""
        self._thread.join()
        if self._error:
            raise self._error
        assert self._loaded
        return self._loaded
