"""Tables and paragraphs of text, printed in the same order as lines, as HTML and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opwatch.sinks.markdown_text import escaped, escaped_cell
from opwatch.sinks.plain.cells import align_columns
from opwatch.sinks.wrapping import wrap_text


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of text under a header. The first `words` columns are names, all others numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


# A string is a paragraph.
Block: TypeAlias = TextTable | str


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title. The title is not printed on a terminal, where the tables speak for themselves."""

    title: str
    blocks: Sequence[Block]


def format_blocks(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield the lines of blocks. Each table but the first is set off by an empty line."""
    is_first = True
    for block in blocks:
        if isinstance(block, str):
            yield from wrap_text(block)
            continue
        yield from ([] if is_first else [""])
        is_first = False
        yield from align_columns(block.head, block.rows)


def format_sections(sections: Iterable[Section]) -> Iterator[str]:
    """Yield the lines of sections, with an empty line between them."""
    for place, section in enumerate(sections):
        yield from ([""] if place else [])
        yield from format_blocks(section.blocks)


def format_markdown_table(table: TextTable) -> Iterator[str]:
    yield _format_cells([escaped_cell(word) for word in table.head])
    yield _format_cells(["---" if place < table.words else "---:" for place in range(len(table.head))])
    yield from (_format_cells([escaped_cell(word) for word in row]) for row in table.rows)


def _format_cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def format_markdown_blocks(blocks: Iterable[Block]) -> Iterator[str]:
    """Yield blocks as Markdown, each followed by an empty line."""
    for block in blocks:
        yield from format_markdown_table(block) if isinstance(block, TextTable) else [escaped(block)]
        yield ""
