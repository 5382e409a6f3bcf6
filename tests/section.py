"""A part of a page of docs/ that is written by machine, between two comments that name it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.bench.figure import IS_SMOKE

DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True)
class Section:
    """`page` is the file's name in docs/; `name` is in the comments around the section."""

    page: str
    name: str

    @property
    def path(self) -> Path:
        return DOCS / self.page

    def renewed(self, text: str, body: str) -> str:
        """The page's text with this body in its section."""
        begin, end = f"<!-- {self.name}: begin -->", f"<!-- {self.name}: end -->"
        before, rest = text.split(begin)
        return f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"

    def write(self, body: str) -> None:
        """Put the body into the page; a smoke run has no figures worth it."""
        if IS_SMOKE:
            return
        self.path.write_text(self.renewed(self.path.read_text(), body))
