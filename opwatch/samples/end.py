"""Why a wait ended, or a whole measurement."""

from __future__ import annotations

import enum


class End(enum.Enum):
    """TICK: its time has come. COUNT: there were as many as were asked for, or for as long. NEWS: something
    may have changed. COMMAND: the command behind `--` has ended. VANISHED: the device has."""

    TICK = enum.auto()
    COUNT = enum.auto()
    NEWS = enum.auto()
    SIGNAL = enum.auto()
    COMMAND = enum.auto()
    VANISHED = enum.auto()
