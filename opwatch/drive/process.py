"""The server process of a drive, identified by the lock it holds. A PID or a program name is no proof."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from opwatch.drive.place import DriveFolder
from opwatch.errors import OpwatchError
from opwatch.host.mountspaces import read_own_mounts
from opwatch.host.usage import find_mount_number

_STOPPED = ("T", "t")
_POLL_INTERVAL_S = 0.25
T = TypeVar("T")


class ServerProcess:
    """An open pidfd of the server. A PID may be reused before a signal is sent, the pidfd cannot."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def is_stopped(self) -> bool:
        """Return True if the process is stopped, by SIGSTOP or by a debugger."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b") ")[2]
        except OSError:
            return False
        return status[:1].decode() in _STOPPED and not self.is_gone()

    def is_gone(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0)[0])

    def send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def wait_gone(self, timeout_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])


def _has_lock_open(pid: int, lock: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                status = entry.stat()
                if (status.st_dev, status.st_ino) == (lock.st_dev, lock.st_ino):
                    return True
    return False


def _list_candidate_pids(place: DriveFolder) -> Iterator[int]:
    record = place.read_record()
    if record:
        yield record.pid
    # The record may be missing because a `create` was killed.
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            yield int(path.name)


@contextlib.contextmanager
def open_server(place: DriveFolder) -> Iterator[ServerProcess | None]:
    """Yield the process with the drive's lock open, running any program, or None after its end."""
    try:
        lock = place.lock_path.stat()
    except OSError:
        yield None
        return
    for pid in _list_candidate_pids(place):
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, ValueError):
            continue
        try:
            process = ServerProcess(pid, descriptor)
            # The order matters: the pidfd is of the inspected process only if the process is alive after the
            # inspection.
            if _has_lock_open(pid, lock) and not process.is_gone():
                yield process
                return
        finally:
            os.close(descriptor)
    yield None


def make_stopped_error(place: DriveFolder, pid: int) -> OpwatchError:
    return OpwatchError(
        f"drive {place.name}: its server (process {pid}) is stopped and does not answer: kill -CONT "
        f"{pid} continues it; kill -KILL {pid} discards its unsaved data"
    )


def explain_unreachable(place: DriveFolder, command: str) -> str | None:
    """Return why the files of a live drive are out of reach, with the remedy, or None if in reach.

    `command` is the caller's command, such as "drive info".
    """
    if find_mount_number(place.mount, read_own_mounts()) is not None:
        return None
    with open_server(place) as process:
        if process and _is_in_other_namespace(process.pid):
            return (
                f"drive {place.name} was created in another mount namespace, where its files are at "
                f"{place.mount}: nsenter --mount --target {process.pid} opwatch {command} {place.name}"
            )
    reason = f"drive {place.name}: nothing is mounted at {place.mount} any more, so it cannot be queried"
    if command == "drive destroy":
        return reason
    return f"{reason}; opwatch drive destroy {place.name} removes it"


def _is_in_other_namespace(pid: int) -> bool:
    """Return True if a process is known to be in another mount namespace."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def run_with_timeout(place: DriveFolder, question: Callable[[], T], timeout_s: float) -> T:
    """Return the result of `question`, a call into the drive's own file system, within `timeout_s`.

    The call runs in a thread, because a caller of a stopped server waits in the kernel.
    """
    done = threading.Event()
    answers: list[T] = []
    errors: list[BaseException] = []

    def run_question() -> None:
        try:
            answers.append(question())
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)
        done.set()

    threading.Thread(target=run_question, daemon=True).start()
    if not done.wait(_POLL_INTERVAL_S):
        _wait_for_server(place, done, timeout_s)
    if errors:
        raise errors[0]
    return answers[0]


def _wait_for_server(place: DriveFolder, done: threading.Event, timeout_s: float) -> None:
    waited_s = _POLL_INTERVAL_S
    with open_server(place) as process:
        while not done.is_set():
            if process and process.is_stopped():
                raise make_stopped_error(place, process.pid)
            if waited_s >= timeout_s:
                pid = process.pid if process else "none"
                raise OpwatchError(
                    f"drive {place.name}: its server (process {pid}) did not answer within {timeout_s:.0f} s"
                )
            done.wait(_POLL_INTERVAL_S)
            waited_s += _POLL_INTERVAL_S


def abort_connection(number: tuple[int, int] | None) -> None:
    """Fail all pending requests of the file system with this device number. Needs a mounted fusectl."""
    if number is not None:
        with contextlib.suppress(OSError):
            Path(f"/sys/fs/fuse/connections/{os.makedev(*number)}/abort").write_text("1")


def end_process(process: ServerProcess, *, politely: bool) -> bool:
    """End the server and return True on success. After SIGTERM the server saves, unless stopped."""
    if politely and not process.is_stopped():
        process.send_signal(signal.SIGTERM)
        if process.wait_gone(10):
            return True
    process.send_signal(signal.SIGKILL)
    return process.wait_gone(10)
