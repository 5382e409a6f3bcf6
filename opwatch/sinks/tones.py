"""Tones: the meaning of a piece of text, and its colour on a terminal."""

from __future__ import annotations

import os
from enum import Enum, auto
from typing import TextIO

CHOICES = ("auto", "always", "never")


class Tone(Enum):
    """Meaning of a piece of text."""

    PLAIN = auto()
    STRONG = auto()
    FAINT = auto()
    GOOD = auto()
    ALARM = auto()
    MARK = auto()
    CHOSEN = auto()
    BAR = auto()
    READ = auto()
    WRITE = auto()
    FLUSH = auto()
    DISCARD = auto()
    SLOW = auto()
    SLOWEST = auto()
    CURSOR = auto()


Span = tuple[str, Tone]
OP_TONES = {"read": Tone.READ, "write": Tone.WRITE, "flush": Tone.FLUSH, "discard": Tone.DISCARD}
# Escape sequences before a text in plain lines, from the sixteen colours that every terminal supports.
CODES = {
    Tone.STRONG: "\x1b[1m",
    Tone.FAINT: "\x1b[2m",
    Tone.GOOD: "\x1b[32m",
    Tone.ALARM: "\x1b[1;31m",
    Tone.READ: "\x1b[36m",
    Tone.WRITE: "\x1b[35m",
    Tone.FLUSH: "\x1b[34m",
    Tone.DISCARD: "\x1b[33m",
    Tone.SLOW: "\x1b[33m",
    Tone.SLOWEST: "\x1b[31m",
}
END = "\x1b[0m"


def is_colour_wanted(choice: str, stream: TextIO) -> bool:
    """Return whether to colour lines on this stream. `auto` colours on a capable terminal unless NO_COLOR is
    set."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
