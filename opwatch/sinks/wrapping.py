"""Text wrapped to 80 columns, or to a narrower terminal. Words stay whole, so that commands and paths can be
copied."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from opwatch import units
from opwatch.sinks.terminal import COLUMNS, get_width


def get_columns() -> int:
    """Return the maximum line width: 80, or the width of a narrower terminal."""
    return min(COLUMNS, get_width(sys.stdout) or COLUMNS)


def wrap_text(text: str, head: str = "", indent: int | None = None, *, keep_words: bool = True) -> list[str]:
    """Return wrapped lines, the first of which starts with `head`.

    Further lines are indented by `indent`, or by the length of `head`. Pass `keep_words=False` for text from
    the drive, which is not copied and may be split anywhere.
    """
    lines = textwrap.wrap(
        units.replace_unprintable(text),
        get_columns(),
        initial_indent=head,
        subsequent_indent=" " * (len(head) if indent is None else indent),
        break_on_hyphens=not keep_words,
        break_long_words=not keep_words,
    )
    return lines or [head.rstrip()]


def wrap_advice(parts: Sequence[str], head: str) -> list[str]:
    """Return lines for an advice of alternating sentences and commands.

    Sentences are wrapped after `head`; each command gets a separate line for copying.
    """
    lines: list[str] = []
    for index, part in enumerate(parts):
        text = units.replace_unprintable(part.strip())
        if not text.strip(" ,;."):
            continue
        if index % 2:
            lines += [] if lines else [head.rstrip()]
            lines.append(f"{' ' * len(head)}{text}")
        else:
            lines += wrap_text(text.lstrip(",;. "), head if not lines else " " * len(head))
    return lines
