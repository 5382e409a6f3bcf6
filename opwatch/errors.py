"""Exceptions, with one class per exit status of the command line."""

from __future__ import annotations


class OpwatchError(Exception):
    """An error. The message says what failed, where, and what to do."""

    exit_status = 1
    # Output of another program about the error: the kernel log, or compiler messages.
    log: str = ""


class UsageError(OpwatchError):
    """The command line is invalid or inconsistent."""

    exit_status = 2


class RefusedError(OpwatchError):
    """Refused for safety."""

    exit_status = 3


class PermissionMissing(OpwatchError):
    """A privilege is missing; the message names the privilege."""

    exit_status = 4


class Unsupported(OpwatchError):
    """The kernel or the drive lacks the feature."""

    exit_status = 5


class TracerMissing(Unsupported):
    """The tracer extension is missing."""

    def __init__(self) -> None:
        super().__init__("this opwatch was built without its tracer; opwatch doctor shows what to install")


class BadInput(OpwatchError, ValueError):
    """Invalid data from another program; the message names the position and the fault."""


class NotEnoughData(OpwatchError):
    """The data allow no conclusion, or no steady state was reached."""

    exit_status = 6


class ProbeRejected(OpwatchError):
    """The verifier or the loader rejected a BPF program: a bug in opwatch. Carries the log."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log
