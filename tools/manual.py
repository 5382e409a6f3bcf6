"""Man pages: a page per command and verb from `docs/man/opwatch.1`, and opening them.

`python -m opwatch.tools.manual SOURCE FOLDER` writes all pages, when opwatch is built.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from opwatch.tools.command_list import COMMANDS

# The headings of the source that the pages are made from.
_SYNOPSIS, _COMMANDS, _JSON = "SYNOPSIS", "COMMANDS", "JSON OUTPUT"
_FONT = re.compile(r"\\f[BIRP]")
# The first tag of a list of options or operands, unlike the tag of a term.
_OPTION = re.compile(r'^\.TP\n(?:\.I [A-Z]|\.B[IR]? "?\\-)', re.MULTILINE)
_REFERENCE = re.compile(r"\b([Aa]s for) \\fBopwatch ([a-z]+(?: [a-z]+)?)\\fR(?!\()")


def list_paths() -> list[str]:
    """Return the commands and verbs, such as `trim audit`."""
    return [
        path
        for name, entry in COMMANDS.items()
        for path in (name, *(f"{name} {verb}" for verb in entry.verbs))
    ]


def make_page_name(path: str) -> str:
    return "-".join(("opwatch", *path.split()))


def _find_purpose(path: str) -> str:
    name, _, verb = path.partition(" ")
    entry = COMMANDS[name]
    return entry.verbs[verb] if verb else entry.help


def _escape(text: str) -> str:
    return text.replace("-", "\\-")


def _refer(path: str) -> str:
    return f"\\fB{_escape(make_page_name(path))}\\fR(1)"


def _split_sections(text: str, heading: str) -> Iterator[tuple[str, str]]:
    """Yield (title, body) of each section; the body ends before the next heading of the kind."""
    for part in re.split(rf"^\.{heading} ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        yield title, body


def _is_used_by(line: str, path: str) -> bool:
    """Whether a line of the overview's synopsis is about a command, or about a verb of it."""
    words = _FONT.sub("", line).replace("\\", "").split()[1:]
    if words[0] == "[watch]":
        return path == "watch"
    name, _, verb = path.partition(" ")
    return words[0] == name and (not verb or verb in words[1].split("|"))


class _Source:
    """The parts of the one page."""

    def __init__(self, text: str) -> None:
        self.head = text[: text.index(".SH ")]
        self.sections = dict(_split_sections(text, "SH"))
        self.commands = {
            title.removeprefix("opwatch "): body
            for title, body in _split_sections(self.sections[_COMMANDS], "SS")
        }

    def find_synopsis(self, path: str) -> list[str]:
        lines = [line for line in self.sections[_SYNOPSIS].splitlines() if not line.startswith(".")]
        return [line for line in lines if _is_used_by(line, path)]

    def find_documents(self, path: str) -> list[str]:
        """Return what the source says about the JSON of a command."""
        return [
            body for title, body in _split_sections(self.sections[_JSON], "SS") if path in title.split(", ")
        ]


def _format_page(source: _Source, path: str) -> str:
    name, _, verb = path.partition(" ")
    head = source.head.replace(" OPWATCH ", f" {make_page_name(path).upper()} ")
    body = _REFERENCE.sub(lambda found: f"{found[1]} {_refer(found[2])}", source.commands[path])
    begin = found.start() if (found := _OPTION.search(body)) else len(body)
    others = [f"{name} {other}" for other in COMMANDS[name].verbs if other != verb]
    related = ", ".join(["\\fBopwatch\\fR(1)", *map(_refer, ([name] if verb else []) + others)])
    parts = [
        head,
        f".SH NAME\n{_escape(make_page_name(path))} \\- {_escape(_find_purpose(path))}\n",
        ".SH SYNOPSIS\n.nf\n" + "\n".join(source.find_synopsis(path)) + "\n.fi\n",
        ".SH DESCRIPTION\n" + body[:begin],
        ".SH OPTIONS\n" + body[begin:] if body[begin:] else "",
    ]
    if documents := source.find_documents(path):
        parts.append(".SH JSON OUTPUT\n" + ".PP\n".join(documents))
    parts.append(
        ".SH EXIT STATUS\nThe statuses of all commands are in \\fBopwatch\\fR(1).\n"
        f".SH SEE ALSO\n{related}\n.PP\n"
        "Times, sizes, device names and sections in capitals that this page names, such as\n"
        "\\fBTRUST LINE\\fR, are described in \\fBopwatch\\fR(1).\n"
    )
    return "".join(parts)


def _format_overview(source: _Source) -> str:
    """Return the page of opwatch itself: the source with a list in place of the commands' sections."""
    general, _, _ = source.sections[_COMMANDS].partition(".SS ")
    rows = [f".TP\n{_refer(path)}\n{_escape(_find_purpose(path))}\n" for path in list_paths()]
    sections = source.sections | {_COMMANDS: "".join((general, ".PP\nEach command has a page:\n", *rows))}
    return source.head + "".join(f".SH {title}\n{body}" for title, body in sections.items())


def format_pages(text: str) -> dict[str, str]:
    """Return the pages by name, from the page that describes everything."""
    source = _Source(text)
    pages = {"opwatch": _format_overview(source)}
    return pages | {make_page_name(path): _format_page(source, path) for path in list_paths()}


def write_pages(source: Path, folder: Path) -> list[Path]:
    """Write all pages into a folder, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in format_pages(source.read_text()).items():
        path = folder / f"{name}.1"
        path.write_text(text)
        written.append(path)
    return written


def find_page(path: str) -> Path | None:
    """Return the file of a command's page: of this installation, or of the checkout."""
    name = f"{make_page_name(path)}.1"
    checkout = Path(__file__).resolve().parents[1] / "build"
    folders = [Path(sys.prefix, "share"), checkout]
    files = [folder / "man" / "man1" / (name + ending) for folder in folders for ending in ("", ".gz")]
    return next((file for file in files if file.is_file()), None)


def open_page(path: str) -> bool:
    """Show a command's page with man(1), and return whether it was shown."""
    page = find_page(path)
    if page is None or not shutil.which("man"):
        return False
    return subprocess.call(["man", "-l", str(page)]) == 0


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]), Path(sys.argv[2]))
