"""Raw reads of a block device, past every cache."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from opwatch.errors import OpwatchError, PermissionMissing

_DEPTH = 8


class RawDisk:
    """An open block device; each read goes to the drive."""

    def __init__(self, device: str, longest: int = 4096) -> None:
        self.device = device
        self._longest = longest
        self._local = threading.local()
        node = Path("/dev") / device
        try:
            self._descriptor = os.open(node, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except PermissionError as error:
            who = "root" if os.geteuid() else "a device cgroup that allows them (here is a container)"
            raise PermissionMissing(f"raw reads of {node} need {who}") from error
        except OSError as error:
            raise OpwatchError(f"{node}: {error.strerror}") from error
        self._pool = ThreadPoolExecutor(_DEPTH, thread_name_prefix="raw")

    def __enter__(self) -> RawDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, offset: int, length: int) -> bytes | None:
        """What the drive gives; None when it cannot read it. Both must be whole logical blocks."""
        buffer: mmap.mmap | None = getattr(self._local, "buffer", None)
        if buffer is None:  # memory of a whole page, as O_DIRECT wants it
            buffer = self._local.buffer = mmap.mmap(-1, self._longest)
        with contextlib.suppress(OSError), memoryview(buffer) as whole, whole[:length] as part:
            if os.preadv(self._descriptor, [part], offset) == length:
                return bytes(part)
        return None

    def read_all(self, offsets: Sequence[int], length: int) -> Iterator[bytes | None]:
        """The same for many places, several at once, in their order."""
        return self._pool.map(lambda offset: self.read(offset, length), offsets)
