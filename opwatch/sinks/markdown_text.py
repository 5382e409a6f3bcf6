"""Untrusted text in Markdown: escaped, or as a code block."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opwatch import units

# Characters with a meaning anywhere in a line, and characters with a meaning only at the start.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~@&]|#(?=\d))")
_AT_BEGIN = re.compile(r"^([-+#=]|\d+(?=[.)](?:\s|$)))")


def escaped(text: str) -> str:
    """Return text with all Markdown escaped: it cannot end a table cell, mention a user or make a link."""
    words = escaped_cell(text)
    begin = _AT_BEGIN.match(words)
    if not begin:
        return words
    # A backslash goes after the number of a list item, and before any other character.
    place = begin.end() if begin[0].isdigit() else 0
    return f"{words[:place]}\\{words[place:]}"


def escaped_cell(text: str) -> str:
    """Return text with its Markdown escaped for a table cell, which never starts a line."""
    return _SPECIAL.sub(r"\\\1", units.replace_unprintable(text))


def fenced(lines: Iterable[str]) -> list[str]:
    """Return lines as a Markdown code block. The fence is longer than any fence in the lines, so no line can
    close the block."""
    block = list(lines)
    longest = max((len(run) for line in block for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *block, fence]


def as_text(text: str) -> str:
    """Return text from a file, with Markdown tags, code and links escaped."""
    return re.sub(r"([\\`<\[])", r"\\\1", units.replace_unprintable(text))
