"""Retry a run that failed because QEMU itself aborted or lost the guest's timer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from tests.vm.errors import EmulatorFailed

_Outcome = TypeVar("_Outcome")

ATTEMPTS = 3


def retry_emulator_failures(attempt: Callable[[], _Outcome]) -> _Outcome:
    """Return the result of `attempt`, retrying up to ATTEMPTS times when QEMU aborts on a failed assertion
    or loses the guest's timer. Such a failure ends the guest but says nothing about the tests. QEMU 10.0
    occasionally aborts when a PCI device is removed: a CPU still holds the number of a memory map section
    that was removed with the device (iotlb_to_section in system/physmem.c). The last failure is raised."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return attempt()
        except EmulatorFailed as failed:
            if not left:
                raise
            print(f"vm: {failed}\nvm: run once more", file=sys.stderr)
    raise AssertionError("there is at least one attempt")
