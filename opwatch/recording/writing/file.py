"""A new recording file with its writer, as the target of a recorder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.recording.writing.newfile import NewDatabase
from opwatch.recording.writing.writer import RecordingWriter


class RecordingFile(RecordingWriter):
    """A recording that is open from construction to end() or abandon(). `path` follows a file that is
    renamed."""

    pause_s: float | None = None
    kept_s: float | None = None

    def __init__(self, path: Path, header: Mapping[str, str | int], *, quickly: bool = False) -> None:
        self.path = path
        self._new = NewDatabase(path)
        try:
            super().__init__(self._new, header, quickly=quickly)
        except BaseException:
            self._new.remove_files()
            raise

    def read_device_number(self) -> int:
        """Return the number of the file's device."""
        return self._new.read_device_number()

    def read_inode(self) -> int:
        """Return the file's inode number."""
        return self._new.read_inode()

    @property
    def is_removed(self) -> bool:
        """True if the file has no name any more, so that everything written to it is lost."""
        return self._new.find_path() is None

    def run_maintenance(self) -> None:
        """Raise an error if the file was removed."""
        place = self._new.find_path()
        if not place:
            raise OpwatchError(
                f"{self.path} was removed while it was being written: the recording has ended and is lost. "
                "Start another one"
            )
        self.path = place

    def end_recording(self, reason: str, mono_ns: int, left_out: int) -> None:
        """End the recording cleanly, as a single file."""
        self.run_maintenance()
        super().end_recording(reason, mono_ns, left_out)
        self._new.close()

    def remove_files(self) -> None:
        """Remove the recording and its side files."""
        self._new.remove_files()

    def abandon(self) -> None:
        """Close the recording without an end."""
        self._new.abandon()
