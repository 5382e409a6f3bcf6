"""Text in 80 columns, or in fewer where the terminal has fewer, words kept whole: commands and paths must not
be torn apart."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from opwatch import units
from opwatch.sinks.terminal import COLUMNS, width_of


def columns() -> int:
    """How wide a line may be: 80, or what a narrower terminal has."""
    return min(COLUMNS, width_of(sys.stdout) or COLUMNS)


def folded(text: str, head: str = "", indent: int | None = None, *, keep_words: bool = True) -> list[str]:
    """Lines that begin with `head`; further ones below the text, or as far in as `indent` says. Words of
    others are not kept whole where nobody copies them."""
    lines = textwrap.wrap(
        units.printable(text),
        columns(),
        initial_indent=head,
        subsequent_indent=" " * (len(head) if indent is None else indent),
        break_on_hyphens=not keep_words,
        break_long_words=not keep_words,
    )
    return lines or [head.rstrip()]


def advice(parts: Sequence[str], head: str) -> list[str]:
    """Lines for an advice of sentences and commands in turn. Sentences are folded below `head`; each command
    is on a line of its own, so that it can be copied."""
    lines: list[str] = []
    for index, part in enumerate(parts):
        text = units.printable(part.strip())
        if not text.strip(" ,;."):
            continue
        if index % 2:
            lines += [] if lines else [head.rstrip()]
            lines.append(f"{' ' * len(head)}{text}")
        else:
            lines += folded(text.lstrip(",;. "), head if not lines else " " * len(head))
    return lines
