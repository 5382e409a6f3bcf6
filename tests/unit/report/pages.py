"""Elements of an HTML page, as a browser's parser sees them."""

from __future__ import annotations

from html.parser import HTMLParser

# Elements without an end tag.
_VOID = frozenset(("meta", "link", "br", "hr", "img", "input"))


class ParsedPage(HTMLParser):
    """Elements with their attributes, and all text; `problems` lists end tags without a start."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.problems: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        self.problems += [f"<{name}> has no end" for name in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> ends nothing")

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data)

    def count_elements(self, name: str, kind: str = "") -> int:
        """Return the number of elements with a name and a class."""
        return sum(
            tag == name and (not kind or kind in (attributes.get("class") or "").split())
            for tag, attributes in self.elements
        )
