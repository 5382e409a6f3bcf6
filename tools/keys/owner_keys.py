"""Choices that the user of an owner table makes by keys: sort order and filter."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.sinks.owners.table import Sort
from opwatch.sinks.tones import Span, Tone
from opwatch.tools.keys.keyboard import BACKSPACE, ENTER, ESCAPE

_SORTS = {"b": Sort.BYTES, "r": Sort.REQUESTS, "t": Sort.TIME, "l": Sort.LATENCY}
_MAX_FILTER_LENGTH = 60


@dataclass(slots=True)
class OwnerKeys:
    """The current choices. Only owners with `words` in their name have rows; case is ignored."""

    sort: Sort
    words: str = ""
    is_typing: bool = False
    is_over: bool = False

    def handle_key(self, key: str) -> None:
        """Apply a key. Unknown keys do nothing."""
        if self.is_typing:
            self._edit_filter(key)
        elif key in _SORTS:
            self.sort = _SORTS[key]
        elif key == "/":
            self.is_typing = True
        elif key == ESCAPE:
            self.words = ""
        elif key == "q":
            self.is_over = True

    def _edit_filter(self, key: str) -> None:
        if key == ENTER:
            self.is_typing = False
        elif key == ESCAPE:
            self.is_typing, self.words = False, ""
        elif key == BACKSPACE:
            self.words = self.words[:-1]
        elif len(key) == 1 and len(self.words) < _MAX_FILTER_LENGTH:
            self.words += key

    def build_spans(self) -> list[Span]:
        """Return the line with the available keys and the current choice."""
        if self.is_typing:
            return [
                ("filter: ", Tone.STRONG),
                (self.words + "_", Tone.STRONG),
                ("  Enter keep  Esc clear", Tone.FAINT),
            ]
        spans: list[Span] = [("sort: ", Tone.FAINT)]
        for key, sort in _SORTS.items():
            is_chosen = sort is self.sort
            spans.append(
                (
                    f"{key} {'[' + sort.value + ']' if is_chosen else sort.value}",
                    Tone.STRONG if is_chosen else Tone.FAINT,
                )
            )
            spans.append(("  ", Tone.PLAIN))
        spans.append((f"/ filter  {'Esc all  ' if self.words else ''}q quit", Tone.FAINT))
        return spans
