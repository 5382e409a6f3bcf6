"""What can go wrong on the bench itself, as opposed to in the command it runs."""

from __future__ import annotations


class BenchError(Exception):
    """The bench failed; says where and what to do. `exit_status` is what the runner exits with."""

    exit_status = 125


class FetchError(BenchError):
    """A package could not be found, downloaded or unpacked."""


class CommandTimeout(BenchError):
    """The command ran out of time while the guest was still answering."""

    exit_status = 124


class GuestError(BenchError):
    """The guest is of no more use. `console` holds everything it printed."""

    def __init__(self, message: str, console: str) -> None:
        tail = "\n".join(console.splitlines()[-60:])
        super().__init__(f"{message}\n--- end of the guest's console ---\n{tail or '(empty)'}")
        self.console = console


class GuestLost(GuestError):
    """The virtual machine ended, or never came up."""


class EmulatorFailed(GuestLost):
    """The emulator gave up by an assertion of its own: nothing that ran in the guest is to blame."""


class GuestPanic(GuestLost):
    """The guest's kernel panicked or oopsed."""


class GuestHung(GuestError):
    """The virtual machine runs but its agent answers no more."""
