"""The process that serves a drive, known by the lock it holds: a number or a program proves nothing."""

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
    """An open handle of the process; the number may be another's by the time it is used, the handle not."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def is_stopped(self) -> bool:
        """Whether it was stopped, by SIGSTOP or by a debugger."""
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
    # The record may be missing, where a `create` was killed.
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != os.getpid():
            yield int(path.name)


@contextlib.contextmanager
def server_of(place: Place) -> Iterator[ServerProcess | None]:
    """The process that has the drive's lock open, from whatever program; None when it is gone."""
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
            # In this order: the handle is of the process that was looked at, if it lives after the look.
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
    """Why the files of a live drive are not where we look, and what to do; None where they are. `command` is
    what was to be done with it: drive info."""
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
    """Whether a process is known to be in another mount namespace."""
    try:
        return Path(f"/proc/{pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
    except OSError:
        return False


def ask(place: Place, question: Callable[[], T], timeout_s: float) -> T:
    """What the drive's own file system answers, within a time: a server that was stopped answers nothing, and
    whoever asks it waits in the kernel."""
    done = threading.Event()
    answers: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(question())
        except BaseException as error:  # it is raised where it was asked for
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
    """End what waits for the file system of this device number, with errors; needs fusectl to be mounted."""
    if number is not None:
        with contextlib.suppress(OSError):
            Path(f"/sys/fs/fuse/connections/{os.makedev(*number)}/abort").write_text("1")


def end_process(process: ServerProcess, *, politely: bool) -> bool:
    """End the server: after SIGTERM it saves; one that is stopped cannot."""
    if politely and not process.is_stopped():
        process.send(signal.SIGTERM)
        if process.wait_gone(10):
            return True
    process.send(signal.SIGKILL)
    return process.wait_gone(10)
