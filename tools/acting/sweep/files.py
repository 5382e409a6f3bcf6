"""Create the files of a level in a dedicated folder of a mounted file system, and always delete them.

No other file is opened, written or deleted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from opwatch.collectors.space.free_space import sync_filesystem
from opwatch.collectors.space.lowest import read_file_extents
from opwatch.errors import OpwatchError, RefusedError
from opwatch.journal.changes import append_change, append_restoration
from opwatch.journal.file import JournalFile
from opwatch.journal.state import SweepState
from opwatch.journal.undo import FOLDER_PREFIX, FilesUndo, parse_undo
from opwatch.load.fio_arguments import LoadWindow, build_fill_arguments, derive_seed
from opwatch.steady.placing import FileRun, merge_runs
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.room import require_planned_usage
from opwatch.tools.acting.guard.held_mount import HeldMount
from opwatch.tools.acting.sweep.bench import SweepBench

_LOAD, _BALLAST = "load", "ballast"
_MODE = 0o600


@contextlib.contextmanager
def create_level_files(
    bench: SweepBench, place: int, level: OpLevel
) -> Iterator[tuple[LoadWindow, list[FileRun]]]:
    """Create the files of a level and write the ballast. Yields the target window and its location on the
    drive.

    The journal records the files before they exist and until they are deleted.
    """
    claim = bench.mount
    undo = FilesUndo(f"{FOLDER_PREFIX}{bench.journal.name}")
    append_change(bench.journal, bench.state, undo)
    try:
        with contextlib.ExitStack() as stack:
            folder = _create_folder(claim, undo.folder)
            stack.callback(os.close, folder)
            if level.ballast_bytes:
                ballast = stack.enter_context(_create_file(claim, folder, _BALLAST, level.ballast_bytes))
                _write_ballast(
                    bench,
                    place,
                    LoadWindow(_make_descriptor_path(ballast), level.ballast_bytes, is_file=True),
                )
            load = stack.enter_context(_create_file(claim, folder, _LOAD, level.load_bytes))
            require_planned_usage(level, claim.read_settled_room(), claim.mount.point)
            runs = _read_runs(claim, load)
            yield LoadWindow(_make_descriptor_path(load), level.load_bytes, is_file=True), runs
            if _read_runs(claim, load) != runs:
                raise OpwatchError(
                    f"{claim.mount.point}: the file was moved while it was written, so its level does "
                    "not count; stop what moves files (a defragmenter?), and resume"
                )
    finally:
        remove_files(claim, undo.folder)
        append_restoration(bench.journal, bench.state, undo)


def undo_files(claim: HeldMount, journal: JournalFile, state: SweepState) -> None:
    """Delete the files of a killed sweep."""
    for undo in [parse_undo(text) for text in state.undo]:
        if isinstance(undo, FilesUndo):
            remove_files(claim, undo.folder)
            append_restoration(journal, state, undo)


def remove_files(claim: HeldMount, name: str) -> None:
    """Delete the files of a level and their folder, if present. Other files in the folder are an error."""
    try:
        folder = os.open(
            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=claim.fileno()
        )
    except FileNotFoundError:
        return
    except OSError as error:
        raise _make_leftover_error(claim, name, error) from error
    try:
        status, own = os.fstat(folder), os.fstat(claim.fileno())
        if (status.st_uid, status.st_dev) != (os.geteuid(), own.st_dev):
            raise RefusedError(f"{claim.mount.point}/{name} is not the folder that the sweep created")
        for file in (_LOAD, _BALLAST):
            with contextlib.suppress(FileNotFoundError):
                _free_blocks(folder, file)
                os.unlink(file, dir_fd=folder)
        os.rmdir(name, dir_fd=claim.fileno())
    except OSError as error:
        raise _make_leftover_error(claim, name, error) from error
    finally:
        os.close(folder)
    try:
        sync_filesystem(claim.fileno())
    except OpwatchError as error:
        raise OpwatchError(
            f"{claim.mount.point}/{name} may still exist: {error}; once that is fixed, resume the sweep"
        ) from error


def _free_blocks(folder: int, name: str) -> None:
    """Free the blocks of a file now.

    XFS frees the blocks of deleted files in the background, possibly after the next trim (Linux commit
    ab23a7768739, "xfs: per-cpu deferred inode inactivation queues", in v5.15).
    """
    descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_leftover_error(claim: HeldMount, name: str, error: OSError) -> OpwatchError:
    return OpwatchError(
        f"{claim.mount.point}/{name} cannot be deleted ({error.strerror}): fix that and resume the "
        "sweep, or delete it"
    )


def _create_folder(claim: HeldMount, name: str) -> int:
    """Create a new folder and return its descriptor."""
    try:
        os.mkdir(name, 0o700, dir_fd=claim.fileno())
        return os.open(
            name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=claim.fileno()
        )
    except OSError as error:
        raise OpwatchError(f"{claim.mount.point}: cannot create a folder: {error.strerror}") from error


@contextlib.contextmanager
def _create_file(claim: HeldMount, folder: int, name: str, n_bytes: int) -> Iterator[int]:
    """Create a file of this size with all blocks allocated."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, _MODE, dir_fd=folder)
        try:
            os.posix_fallocate(descriptor, 0, n_bytes)
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        raise OpwatchError(
            f"{claim.mount.point}: no space for a file of {n_bytes} bytes: {error.strerror}"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make_descriptor_path(descriptor: int) -> str:
    """Return a path to the open file, independent of its name."""
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def _write_ballast(bench: SweepBench, place: int, window: LoadWindow) -> None:
    bench.talk.show_progress("writing the ballast")
    bench.announce_step(place, "limit", window.size_bytes)
    seed = derive_seed(bench.state.request.secret, place, "ballast")
    bench.run_fio(build_fill_arguments(window, seed), window.size_bytes, lambda: None)


def _read_runs(claim: HeldMount, descriptor: int) -> list[FileRun]:
    """Return the file's extents on the drive, in file order."""
    sync_filesystem(claim.fileno())
    begin = claim.place.begin_bytes
    extents = read_file_extents(descriptor)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or not extents:
        raise OpwatchError(f"{claim.mount.point}: the filesystem does not report the location of its file")
    return merge_runs(FileRun(begin + one.physical, one.logical, one.length) for one in extents)
