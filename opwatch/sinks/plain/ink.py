"""Colours of plain lines: by what they mean, in the sixteen that every terminal has."""

from __future__ import annotations

import os
from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

CHOICES = ("auto", "always", "never")


class Ink(Enum):
    """What a piece of a line is. The value is what a terminal is sent before it, nothing for plain text."""

    PLAIN = ""
    STRONG = "\x1b[1m"
    FAINT = "\x1b[2m"
    GOOD = "\x1b[32m"
    ALARM = "\x1b[1;31m"
    READ = "\x1b[36m"
    WRITE = "\x1b[35m"
    FLUSH = "\x1b[34m"
    DISCARD = "\x1b[33m"
    SLOW = "\x1b[33m"
    SLOWEST = "\x1b[31m"


END = "\x1b[0m"
Span = tuple[str, Ink]


def is_wanted(choice: str, stream: TextIO) -> bool:
    """Whether lines on this stream are to be coloured: `auto` is on a terminal that can, but for NO_COLOR."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
