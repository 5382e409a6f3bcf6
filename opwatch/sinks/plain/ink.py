"""Colours of plain lines by meaning, from the sixteen that every terminal supports."""

from __future__ import annotations

import os
from enum import Enum
from typing import TextIO

CHOICES = ("auto", "always", "never")


class Ink(Enum):
    """Meaning of a part of a line. The value is the escape sequence sent before it, empty for plain text."""

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


def is_colour_wanted(choice: str, stream: TextIO) -> bool:
    """Return whether to colour lines on this stream. `auto` colours on a capable terminal unless NO_COLOR is
    set."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
