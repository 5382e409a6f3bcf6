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
from opwatch.recording.reading.window import close_run
from opwatch.recording.ring.dumping import write_run
from opwatch.recording.ring.folder import RingFolder
from opwatch.recording.ring.joined import JoinedRun
from opwatch.recording.ring.ring import Ring, RingBounds
from opwatch.samples.entries import RunEntry
from opwatch.tools.runs.run_recorder import (
    LiveSource,
    RunRecorder,
    create_recording,
    make_header,
    remove_on_error,
)

# Same duration as the dashboard's own history. It is kept in memory, because a watched disk must not be
# written.
_BOUNDS = RingBounds(keep_s=3600, most_bytes=64 << 20)
_IN_MEMORY = (Path("/run"), Path("/dev/shm"))
_NAME = "opwatch-shown-"
# A younger folder may not have been locked by the recorder yet.
_YOUNG_S = 60.0


class HourRecorder:
    """Keeps the last hour of a run, from construction to close()."""

    def __init__(self, live: LiveSource, interval_s: float) -> None:
        memory = _find_memory_folder()
        _remove_abandoned(memory)
        self._path = Path(tempfile.mkdtemp(prefix=_NAME, dir=memory))
        self._folder = RingFolder(self._path)
        try:
            self._folder.lock_as_recorder()
            self._kept = RunRecorder(live, Ring(self._folder, make_header(interval_s), _BOUNDS))
        except BaseException:
            self._remove_folder()
            raise

    def add_entry(self, entry: RunEntry) -> None:
        self._kept.add_entry(entry)

    def write_recording(self, tell: Callable[[str], None]) -> None:
        """Save the kept data as a new recording in the current folder, and report its path."""
        path = Path(f"opwatch-{datetime.now():%Y%m%d-%H%M%S}.opw")
        try:
            self._write_file(path)
        except (OpwatchError, OSError) as error:
            tell(f"cannot write the recording: {error}")
        else:
            tell(f"recorded: {path.resolve()}; opwatch replay shows it")

    def _write_file(self, path: Path) -> None:
        with closing(RingFolder(self._path)) as folder, folder.keep_segments():
            folder.request_segment()
            with closing(JoinedRun(folder)) as joined:
                target = create_recording(
                    path, joined.header | {"dumped": datetime.now(UTC).isoformat(timespec="seconds")}
                )
                with remove_on_error(target):
                    write_run(close_run(joined.iter_entries()), joined.events, target)

    def close(self) -> None:
        """Delete the kept data."""
        try:
            self._kept.__exit__(None, None, None)
        finally:
            self._remove_folder()

    def _remove_folder(self) -> None:
        self._folder.close()
        shutil.rmtree(self._path, ignore_errors=True)


def _find_memory_folder() -> Path:
    """Return a folder in memory, or the default temporary folder."""
    usual = Path(tempfile.gettempdir())
    return next((path for path in _IN_MEMORY if path.is_dir() and os.access(path, os.W_OK)), usual)


def _remove_abandoned(memory: Path) -> None:
    """Remove data that killed dashboards left, which no process holds any more."""
    for path in memory.glob(f"{_NAME}*"):
        # Another dashboard may remove the same folder concurrently.
        with contextlib.suppress(OpwatchError, OSError), closing(RingFolder(path)) as folder:
            if time.time() - path.stat().st_mtime > _YOUNG_S and not folder.is_owned():
                shutil.rmtree(path, ignore_errors=True)
