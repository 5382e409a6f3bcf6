"""A new recording and what writes into it, as the target of a recorder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter


class RecordingFile(RecordingWriter):
    """A recording that is open from construction to end() or abandon()."""

    pause_s: float | None = None
    kept_s: float | None = None

    def __init__(self, path: Path, header: Mapping[str, str | int], *, quickly: bool = False) -> None:
        self.path = path
        self._new = NewDatabase(path)
        try:
            super().__init__(self._new, header, quickly=quickly)
        except BaseException:
            self._new.remove()
            raise

    def device(self) -> int:
        """The number of the device that it lies on."""
        return self._new.device()

    def inode(self) -> int:
        """The number of the file on that device."""
        return self._new.inode()

    def pause(self) -> None:
        """Do nothing: a file, unlike a ring, has nothing to do of itself."""

    def end(self, reason: str, mono_ns: int, left_out: int) -> None:
        """End it cleanly; there is one file afterwards."""
        super().end(reason, mono_ns, left_out)
        self._new.close()

    def remove(self) -> None:
        """Leave nothing of it."""
        self._new.remove()

    def abandon(self) -> None:
        """Leave it as it is, without an end."""
        self._new.abandon()
