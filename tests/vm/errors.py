"""Failures of the bench itself, as opposed to failures of the command in the guest."""

from __future__ import annotations


class BenchError(Exception):
    """The bench failed; the message says where and how to fix it. The runner exits with `exit_status`."""

    exit_status = 125


class FetchError(BenchError):
    """A package could not be found, downloaded or unpacked."""


class CommandTimeout(BenchError):
    """The command ran out of time while the guest was still answering."""

    exit_status = 124


class GuestError(BenchError):
    """The guest is unusable. `console` holds all of its output."""

    def __init__(self, message: str, console: str) -> None:
        tail = "\n".join(console.splitlines()[-60:])
        super().__init__(f"{message}\n--- end of the guest's console ---\n{tail or '(empty)'}")
        self.console = console


class GuestLost(GuestError):
    """The virtual machine ended, or never started."""


class EmulatorFailed(GuestLost):
    """The emulator failed an assertion or lost the guest's timer, which no program in the guest can cause."""


class GuestPanic(GuestLost):
    """The guest's kernel panicked or oopsed."""


class GuestHung(GuestError):
    """The virtual machine runs but its agent no longer answers."""
