"""Text in 80 columns, or in fewer where the terminal has fewer, words kept whole: commands and paths must not
be torn apart."""

from __future__ import annotations

import sys
import textwrap

from opwatch import units
from opwatch.sinks.terminal import COLUMNS, width_of


def folded(text: str, head: str = "", indent: int | None = None) -> list[str]:
    """Lines that begin with `head`; further ones below the text, or as far in as `indent` says."""
    lines = textwrap.wrap(
        units.printable(text),
        min(COLUMNS, width_of(sys.stdout) or COLUMNS),
        initial_indent=head,
        subsequent_indent=" " * (len(head) if indent is None else indent),
        break_on_hyphens=False,
        break_long_words=False,
    )
    return lines or [head.rstrip()]
