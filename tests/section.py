"""A generated part of a page in docs/, between two marker comments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.bench.figure import IS_SMOKE

DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True)
class Section:
    """A section of `page`, a file in docs/. `name` appears in the marker comments."""

    page: str
    name: str

    @property
    def path(self) -> Path:
        return DOCS / self.page

    def replace_body(self, text: str, body: str) -> str:
        """Return the page's text with `body` in the section."""
        begin, end = f"<!-- {self.name}: begin -->", f"<!-- {self.name}: end -->"
        before, rest = text.split(begin)
        return f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"

    def write_body(self, body: str) -> None:
        """Write the body into the page. Does nothing in a smoke run, because its figures are meaningless."""
        if IS_SMOKE:
            return
        self.path.write_text(self.replace_body(self.path.read_text(), body))
