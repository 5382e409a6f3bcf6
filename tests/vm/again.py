"""Runs once more what the emulator itself broke off."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

from tests.vm.errors import EmulatorFailed

_Outcome = TypeVar("_Outcome")

ATTEMPTS = 3


def until_the_emulator_holds(attempt: Callable[[], _Outcome]) -> _Outcome:
    """What the attempt returns. An assertion of QEMU ends a guest and says nothing of the tests in it. With
    10.0 one fails now and then where a PCI device goes: a processor still has the number of a section of the
    memory map that went with it (iotlb_to_section in system/physmem.c). The last such end is a failure."""
    for left in reversed(range(ATTEMPTS)):
        try:
            return attempt()
        except EmulatorFailed as failed:
            if not left:
                raise
            print(f"vm: {failed}\nvm: run once more", file=sys.stderr)
    raise AssertionError("there is at least one attempt")
