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

from opwatch.drive.place import Place
from opwatch.errors import OpwatchError
from opwatch.host.mountspaces import own_mounts
from opwatch.host.usage import number_of_mount

_STOPPED = ("T", "t")
_LOOK_EVERY_S = 0.25
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

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def wait_gone(self, timeout_s: float) -> bool:
        return bool(select.select([self._descriptor], [], [], timeout_s)[0])


def _holds(pid: int, lock: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                status = entry.stat()
                if (status.st_dev, status.st_ino) == (lock.st_dev, lock.st_ino):
                    return True
    return False


def _candidates(place: Place) -> Iterator[int]:
    record = place.record()
    if record:
        yield record.pid
    # The record may be missing because a `create` was killed.
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            yield int(path.name)


@contextlib.contextmanager
def server_of(place: Place) -> Iterator[ServerProcess | None]:
    """Yield the process with the drive's lock open, running any program, or None after its end."""
    try:
        lock = place.lock_path.stat()
    except OSError:
        yield None
        return
    for pid in _candidates(place):
        try:
            descriptor = os.pidfd_open(pid)
        except (OSError, ValueError):
            continue
        try:
            process = ServerProcess(pid, descriptor)
            # The order matters: the pidfd is of the inspected process only if the process is alive after the
            # inspection.
            if _holds(pid, lock) and not process.is_gone():
                yield process
                return
        finally:
            os.close(descriptor)
    yield None


def stopped(place: Place, pid: int) -> OpwatchError:
    return OpwatchError(
        f"drive {place.name}: its server (process {pid}) is stopped and answers nothing: kill -CONT {pid} "
        f"lets it go on; kill -KILL {pid} gives up what it has not saved"
    )


def out_of_reach(place: Place, command: str) -> str | None:
    """Return why the files of a live drive are out of reach, with the remedy, or None if in reach.

    `command` is the caller's command, such as "drive info".
    """
    if number_of_mount(place.mount, own_mounts()) is not None:
        return None
    with server_of(place) as process:
        if process and _is_elsewhere(process.pid):
            return (
                f"drive {place.name} was made in another mount namespace: its files are at {place.mount} "
                f"there, not here: nsenter --mount --target {process.pid} opwatch {command} {place.name}"
            )
    reason = f"drive {place.name}: nothing is mounted at {place.mount} any more: it cannot be asked"
    if command == "drive destroy":
        return reason
    return f"{reason}; opwatch drive destroy {place.name} removes it"


def _is_elsewhere(pid: int) -> bool:
    """Return True if a process is known to be in another mount namespace."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def ask(place: Place, question: Callable[[], T], timeout_s: float) -> T:
    """Return the result of `question`, a call into the drive's own file system, within `timeout_s`.

    The call runs in a thread, because a caller of a stopped server waits in the kernel.
    """
    done = threading.Event()
    answers: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(question())
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)
        done.set()

    threading.Thread(target=work, daemon=True).start()
    if not done.wait(_LOOK_EVERY_S):
        _wait_for_server(place, done, timeout_s)
    if errors:
        raise errors[0]
    return answers[0]


def _wait_for_server(place: Place, done: threading.Event, timeout_s: float) -> None:
    waited_s = _LOOK_EVERY_S
    with server_of(place) as process:
        while not done.is_set():
            if process and process.is_stopped():
                raise stopped(place, process.pid)
            if waited_s >= timeout_s:
                pid = process.pid if process else "none"
                raise OpwatchError(
                    f"drive {place.name}: its server (process {pid}) did not answer within {timeout_s:.0f} s"
                )
            done.wait(_LOOK_EVERY_S)
            waited_s += _LOOK_EVERY_S


def abort_connection(number: tuple[int, int] | None) -> None:
    """Fail all pending requests of the file system with this device number. Needs a mounted fusectl."""
    if number is not None:
        with contextlib.suppress(OSError):
            Path(f"/sys/fs/fuse/connections/{os.makedev(*number)}/abort").write_text("1")


def end_process(process: ServerProcess, *, politely: bool) -> bool:
    """End the server and return True on success. After SIGTERM the server saves, unless stopped."""
    if politely and not process.is_stopped():
        process.send(signal.SIGTERM)
        if process.wait_gone(10):
            return True
    process.send(signal.SIGKILL)
    return process.wait_gone(10)
