"""Reasons for the end of a wait or of a whole measurement."""

from __future__ import annotations

import enum


class End(enum.Enum):
    """The reason: TICK: the time has come. COUNT: the requested number or duration was reached. NEWS:
    something may have changed. SIGNAL: a signal arrived. COMMAND: the command after `--` has ended.
    VANISHED: the device is gone."""

    TICK = enum.auto()
    COUNT = enum.auto()
    NEWS = enum.auto()
    SIGNAL = enum.auto()
    COMMAND = enum.auto()
    VANISHED = enum.auto()
