"""Smoke runs (`make smoke`, OPWATCH_SMOKE=1): every step of a benchmark with tiny sizes, so that CI notices
when one no longer runs. A smoke run judges no figure and writes none into docs."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
IS_SMOKE = os.environ.get("OPWATCH_SMOKE") == "1"


def sized(full: T, smoke: T) -> T:
    """Return the size for this run."""
    return smoke if IS_SMOKE else full


def exit_status(*, holds: bool) -> int:
    """Return 0 if all bounds hold, or in a smoke run, which has no bounds; else 1."""
    return 0 if holds or IS_SMOKE else 1
