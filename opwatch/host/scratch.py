"""A loop device on a sparse file in memory: a private disk for harmless load tests."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType

from opwatch.errors import OpwatchError
from opwatch.host import loop

MEMORY = Path("/dev/shm")
_NO_TMPFILE = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT)


def create_unnamed_file(folder: Path, size_bytes: int) -> int:
    """Return a new sparse file that disappears with the last descriptor, even after a kill at any moment."""
    try:
        descriptor = _open_unnamed(folder)
        try:
            os.truncate(descriptor, size_bytes)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise OpwatchError(f"{folder}: cannot create a file for a disk there: {error.strerror}") from error
    return descriptor


def _open_unnamed(folder: Path) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(folder, os.O_TMPFILE | flags, 0o600)
    except OSError as error:
        if error.errno not in _NO_TMPFILE:
            raise
    # Some file systems, such as FUSE, have no unnamed files. Use a named file and unlink immediately.
    path = folder / f"opwatch-{os.urandom(8).hex()}"
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | flags, 0o600)
    path.unlink()
    return descriptor


class ScratchDisk:
    """A disk for the duration of a `with` block.

    `node` is the device node, exclusive as long as the disk exists; `path` is the same for tools, by
    descriptor; `backing` is the file.
    """

    def __init__(self, size_bytes: int, *, direct_io: bool = False, folder: Path = MEMORY) -> None:
        self._size = size_bytes
        self._direct_io = direct_io
        self._folder = folder
        self._device: loop.LoopDevice | None = None
        self._file = -1
        self.node = ""

    def __enter__(self) -> ScratchDisk:
        self._file = create_unnamed_file(self._folder, self._size)
        try:
            self._device = loop.attach_loop(self._file, loop.Binding(direct_io=self._direct_io))
        except BaseException:
            self._close_file()
            raise
        self.node = self._device.node
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()
        self._close_file()

    @property
    def name(self) -> str:
        """Return the kernel name, such as loop3."""
        return Path(self.node).name

    @property
    def path(self) -> str:
        """Return a path for tools, by descriptor. Raise RefusedError if the disk was replaced."""
        if self._device is None:
            raise OpwatchError("this disk has been detached")
        self._device.require_same()
        return self._device.path

    @property
    def backing_path(self) -> Path:
        """Return the path of the backing file."""
        return Path(f"/proc/{os.getpid()}/fd/{self._file}")

    def detach(self) -> None:
        """Detach the device now, like a pulled drive. If other processes use the device, the kernel
        detaches at the last close."""
        if self._device:
            self._device.detach()
            self._device = None
            self.node = ""

    def _close_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
