"""Raw reads of a block device, bypassing all caches."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from opwatch.closing import Closable
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.host.device import Devices
from opwatch.host.loop import read_diskseq

_DEPTH = 8


class RawDisk(Closable):
    """Open block device with direct reads. `life` is the expected diskseq, if known."""

    def __init__(self, device: str, longest: int = 4096, *, life: int | None = None) -> None:
        self.device = device
        self._longest = longest
        self._local = threading.local()
        node = Path("/dev") / device
        try:
            self._descriptor = os.open(node, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except PermissionError as error:
            who = "root" if os.geteuid() else "a device cgroup that allows them (this is a container)"
            raise PermissionMissing(f"raw reads of {node} require {who}") from error
        except OSError as error:
            raise OpwatchError(f"{node}: {error.strerror}") from error
        self._life = read_diskseq(self._descriptor)
        try:
            self._require_node(node)
            if life is not None and life != self._life:
                raise RefusedError(f"{node} is another disk now: run the command again")
        except BaseException:
            os.close(self._descriptor)
            raise
        self._pool = ThreadPoolExecutor(_DEPTH, thread_name_prefix="raw")

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _require_node(self, node: Path) -> None:
        """Raise RefusedError if the node belongs to another device, e.g. in a container."""
        number = os.fstat(self._descriptor).st_rdev
        dev = f"{os.major(number)}:{os.minor(number)}"
        device = Devices().by_name(self.device)
        if device is None or device.dev != (os.major(number), os.minor(number)):
            raise RefusedError(f"{node} has the device number {dev}, which is not {self.device}")

    def require_same(self) -> None:
        """Raise RefusedError if the medium or backing file has changed since the device was opened."""
        if read_diskseq(self._descriptor) != self._life:
            raise RefusedError(f"{self.device} was replaced while opwatch read it")

    def read(self, offset: int, length: int) -> bytes | None:
        """Return the data at an offset, or None if unreadable. Offset and length are whole logical blocks."""
        buffer: mmap.mmap | None = getattr(self._local, "buffer", None)
        if buffer is None:  # Page-aligned memory for O_DIRECT
            buffer = self._local.buffer = mmap.mmap(-1, self._longest)
        with contextlib.suppress(OSError), memoryview(buffer) as whole, whole[:length] as part:
            if os.preadv(self._descriptor, [part], offset) == length:
                return bytes(part)
        return None

    def read_blocks(self, offsets: Iterable[int], length: int) -> Iterator[tuple[int, bytes | None]]:
        """Yield (offset, data) of these blocks.

        Reads adjacent blocks with one request, and each block separately if that fails.
        """
        row: list[int] = []
        for offset in sorted(offsets):
            if row and (offset != row[-1] + length or (len(row) + 1) * length > self._longest):
                yield from self._read_row(row, length)
                row = []
            row.append(offset)
        if row:
            yield from self._read_row(row, length)

    def _read_row(self, row: Sequence[int], length: int) -> Iterator[tuple[int, bytes | None]]:
        data = self.read(row[0], len(row) * length)
        for number, offset in enumerate(row):
            whole = (
                data[number * length : (number + 1) * length]
                if data is not None
                else self.read(offset, length)
            )
            yield offset, whole

    def read_all(self, offsets: Sequence[int], length: int) -> Iterator[bytes | None]:
        """Return the data at many offsets, in order, with concurrent reads."""
        return self._pool.map(lambda offset: self.read(offset, length), offsets)
