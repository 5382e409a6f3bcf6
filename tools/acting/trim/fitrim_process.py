"""Run FITRIM in a child process, so that its discards are identifiable and signals can stop the trim."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import struct
from collections.abc import Callable

from opwatch.collectors.space.mount_handle import open_mount
from opwatch.errors import OpwatchError
from opwatch.host.privilege import make_permission_error
from opwatch.host.usage import Mount
from opwatch.tools.acting.trim.fitrim import send_fitrim
from opwatch.trim.audit.fitrim import Asked, FitrimAnswer

_ANSWER = struct.Struct("=qQ")


def trim_in_child(mount: Mount, asked: Asked, started: Callable[[int], None]) -> FitrimAnswer:
    """Trim, and return the kernel's claim. Calls `started` with the child's pid before the trim begins."""
    with open_mount(mount) as descriptor:
        return _fork_child(descriptor, asked, started)


def _fork_child(descriptor: int, asked: Asked, started: Callable[[int], None]) -> FitrimAnswer:
    go_read, go_write = os.pipe2(os.O_CLOEXEC)
    answer_read, answer_write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = os.fork()
        if pid == 0:
            _run_child(descriptor, asked, go_read, go_write, answer_write)
        os.close(answer_write)
        answer_write = -1
        started(pid)
        os.write(go_write, b"g")
        return _wait_for_answer(pid, answer_read)
    finally:
        for number in (go_read, go_write, answer_read, answer_write):
            if number >= 0:
                os.close(number)


def _run_child(descriptor: int, asked: Asked, go_read: int, go_write: int, answer: int) -> None:
    """Send FITRIM, then exit without returning.

    The child exits early if the parent dies, and signals have their default action.
    """
    status = 1
    with contextlib.suppress(BaseException):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.close(go_write)
        if os.read(go_read, 1):
            given = send_fitrim(descriptor, asked)
            os.write(answer, _ANSWER.pack(given.error, given.claimed or 0))
            status = 0
    os._exit(status)


def _wait_for_answer(pid: int, answer: int) -> FitrimAnswer:
    """Return the child's answer, without a claim if a signal ended the child."""
    interrupted = False
    while True:
        try:
            raw = os.read(answer, _ANSWER.size)
            break
        except KeyboardInterrupt:
            interrupted = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
    _, status = os.waitpid(pid, 0)
    if len(raw) == _ANSWER.size:
        error, claimed = _ANSWER.unpack(raw)
        if error in (errno.EPERM, errno.EACCES):
            raise make_permission_error("FITRIM", "CAP_SYS_ADMIN, or root", "trim audit ...")
        return FitrimAnswer(None if error else claimed, error, interrupted)
    if os.WIFSIGNALED(status):
        return FitrimAnswer(None, 0, True)
    raise OpwatchError("FITRIM: the child process that calls it ended without a result")
