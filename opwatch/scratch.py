"""A loop device on a sparse file in memory: a disk of our own, to load without harm."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from opwatch.errors import OpwatchError, PermissionMissing
from opwatch.process import run_tool

MEMORY = Path("/dev/shm")


class ScratchDisk:
    """Exists while it is entered: `node` is its device. Nothing of it is left behind."""

    def __init__(self, size_bytes: int, *, direct_io: bool = False, folder: Path = MEMORY) -> None:
        self._size = size_bytes
        self._direct_io = direct_io
        self._folder = folder
        self.node = ""

    def __enter__(self) -> ScratchDisk:
        with tempfile.NamedTemporaryFile(prefix="opwatch-", dir=self._folder, delete=False) as backing:
            backing.truncate(self._size)
            self._file = Path(backing.name)
        try:
            direct = f"--direct-io={'on' if self._direct_io else 'off'}"
            self.node = run_tool(["losetup", "--find", "--show", "--partscan", direct, backing.name]).strip()
        except OpwatchError as error:
            self._file.unlink()
            kind = OpwatchError if os.geteuid() == 0 else PermissionMissing
            raise kind(f"cannot make a loop device: {error}") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.detach()
        self._file.unlink(missing_ok=True)

    @property
    def name(self) -> str:
        """The kernel's name, such as loop3."""
        return Path(self.node).name

    def detach(self) -> None:
        """Take the device away now, as a drive that is pulled."""
        if self.node:
            subprocess.run(["losetup", "--detach", self.node], check=False, stderr=subprocess.DEVNULL)
            self.node = ""
