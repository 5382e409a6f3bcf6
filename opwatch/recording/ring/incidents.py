"""The recordings that a flight recorder writes on its own. Only the newest are kept."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from datetime import datetime
from pathlib import Path

from opwatch.errors import OpwatchError

# No other file of the folder is ever removed.
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-[\w-]+\.opw", re.ASCII)

# What made requests slow in a recording is in a file of its name and this suffix.
ANSWER_SUFFIX = ".why"


class IncidentFolder:
    """A folder with at most `most` recordings, held open from construction to close()."""

    def __init__(self, folder: Path, most: int) -> None:
        self._path, self._most = folder, most
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise OpwatchError(
                f"{folder} cannot be created: {error.strerror}; name another folder with --into"
            ) from error

    def close(self) -> None:
        os.close(self._folder)

    def new_path(self, device: str) -> Path:
        """Return the path of a new recording, named after the current time and the device."""
        safe = "".join(char if char.isalnum() and char.isascii() else "-" for char in device)
        return self._path / f"{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}-{safe}.opw"

    def make_room(self) -> list[Path]:
        """Remove the oldest recordings until there is room for a new one. Return the paths removed."""
        kept = sorted(self._list_recordings(), key=lambda entry: entry[0])
        removed = []
        for _, name in kept[: max(len(kept) - self._most + 1, 0)]:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._folder)
                removed.append(self._path / name)
                os.unlink(f"{name}{ANSWER_SUFFIX}", dir_fd=self._folder)
        return removed

    def _list_recordings(self) -> list[tuple[int, str]]:
        """Return (modification time, name) of each recording."""
        listed = []
        with os.scandir(self._folder) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                if _NAME.fullmatch(name) and stat.S_ISREG(status.st_mode):
                    listed.append((status.st_mtime_ns, name))
        return listed
