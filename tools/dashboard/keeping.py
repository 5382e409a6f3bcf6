"""The data of a live dashboard, which the user can save as a recording."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from opwatch.errors import OpwatchError
from opwatch.recording.reading.window import ended
from opwatch.recording.ring.dumping import write_run
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.samples.entries import RunEntry
from opwatch.tools.kept_run import KeptRun, LiveSource, header, made, whole

# Same duration as the dashboard's own history. It is kept in memory, because a watched disk must not be
# written.
_KEEP = RingBounds(keep_s=3600, most_bytes=64 << 20)
_IN_MEMORY = (Path("/run"), Path("/dev/shm"))
_NAME = "opwatch-shown-"
# A younger folder may not have been locked by the recorder yet.
_YOUNG_S = 60.0


class KeptHour:
    """Keeps the last hour of a run, from construction to close()."""

    def __init__(self, live: LiveSource, interval_s: float) -> None:
        memory = _memory()
        _forget_killed(memory)
        self._path = Path(tempfile.mkdtemp(prefix=_NAME, dir=memory))
        self._folder = RingFolder(self._path)
        try:
            self._folder.own()
            self._kept = KeptRun(live, Ring(self._folder, header(interval_s), _KEEP))
        except BaseException:
            self._remove()
            raise

    def take(self, entry: RunEntry) -> None:
        self._kept.take(entry)

    def write(self, tell: Callable[[str], None]) -> None:
        """Save the kept data as a new recording in the current folder, and report its path."""
        path = Path(f"opwatch-{datetime.now():%Y%m%d-%H%M%S}.opw")
        try:
            self._write(path)
        except (OpwatchError, OSError) as error:
            tell(f"no recording was written: {error}")
        else:
            tell(f"written: {path.resolve()}; opwatch replay shows it")

    def _write(self, path: Path) -> None:
        with closing(RingFolder(self._path)) as folder, folder.kept():
            folder.request()
            with closing(JoinedRun(folder)) as joined:
                target = made(
                    path, joined.header | {"dumped": datetime.now(UTC).isoformat(timespec="seconds")}
                )
                with whole(target):
                    write_run(ended(joined.entries()), joined.events, target)

    def close(self) -> None:
        """Delete the kept data."""
        try:
            self._kept.__exit__(None, None, None)
        finally:
            self._remove()

    def _remove(self) -> None:
        self._folder.close()
        shutil.rmtree(self._path, ignore_errors=True)


def _memory() -> Path:
    """Return a folder in memory, or the default temporary folder."""
    usual = Path(tempfile.gettempdir())
    return next((path for path in _IN_MEMORY if path.is_dir() and os.access(path, os.W_OK)), usual)


def _forget_killed(memory: Path) -> None:
    """Remove data that killed dashboards left, which no process holds any more."""
    for path in memory.glob(f"{_NAME}*"):
        # Another dashboard may remove the same folder concurrently.
        with contextlib.suppress(OpwatchError, OSError), closing(RingFolder(path)) as folder:
            if time.time() - path.stat().st_mtime > _YOUNG_S and not folder.is_owned():
                shutil.rmtree(path, ignore_errors=True)
