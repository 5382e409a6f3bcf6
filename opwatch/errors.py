"""What can go wrong, one class per exit status of the command line."""

from __future__ import annotations


class OpwatchError(Exception):
    """Says what failed, where, and what to do about it."""

    exit_status = 1
    # What another program said about it, line by line: the kernel's log, a compiler's messages.
    log: str = ""


class UsageError(OpwatchError):
    """The command line asks for something that makes no sense."""

    exit_status = 2


class RefusedError(OpwatchError):
    """Refused for safety."""

    exit_status = 3


class PermissionMissing(OpwatchError):
    """A privilege is missing; the message names it."""

    exit_status = 4


class Unsupported(OpwatchError):
    """This kernel or this drive lacks the feature."""

    exit_status = 5


class TracerMissing(Unsupported):
    """Our own part that talks to the kernel is not there."""

    def __init__(self) -> None:
        super().__init__("this opwatch was built without its tracer; opwatch doctor says what to install")


class BadInput(OpwatchError, ValueError):
    """Bytes that others wrote are not what they should be: the message says where, and in what way."""


class NotEnoughData(OpwatchError):
    """The data allow no statement, or no steady state was reached."""

    exit_status = 6


class ProbeRejected(OpwatchError):
    """The verifier or the loader refused one of our programs: a bug in opwatch, with its log."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log
