"""Convert the plain text of `iostat -x -t` into the structure of its JSON output. Pure."""

from __future__ import annotations

import re
from typing import Any

from opwatch.errors import BadInput
from opwatch.foreign import split_lines

_HEADER = re.compile(r"Linux [^\n]{1,400}\(([0-9]{1,6}) CPU\)", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,20}(?:[.,][0-9]{1,9})?", re.ASCII)
# A date and a time, or both in one word with S_TIME_FORMAT=ISO.
_TIME = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}(?: |T)[0-9]{1,2}:[0-9]{2}:[0-9]{2}[^\n]{0,12}")
_HUMAN_SUFFIXES = ("%", "k", "M", "G", "T")
_CPU, _DEVICE = "avg-cpu:", "Device"
_RUN_HINT = "run S_TIME_FORMAT=ISO iostat -x -t 1, or with -o JSON"
_MAX_COLUMNS = 64
# A file of 64 MiB holds a third more rows of 160 characters.
_MAX_ROWS = 1 << 18
# The columns that are evaluated; keeping the rest would waste memory.
_USED_COLUMN = re.compile(r"[rwdf](?:/s|kB/s|MB/s|sec/s|_await|areq-sz)|tps")


def is_iostat_text(text: str) -> bool:
    """Return whether the first line is an iostat header."""
    return _HEADER.match(text) is not None


def parse_iostat_text(text: str, name: str) -> dict[str, Any]:
    """Return a document like the output of `-o JSON`, without a truncated last report.

    Raise BadInput, with the line, for other text.
    """
    header = _HEADER.match(text)
    if not header:
        raise BadInput(f"{name}, line 1: this is not output of iostat: {_RUN_HINT}")
    parser = _Parser(name)
    lines = split_lines(text)
    for number, line in enumerate(lines[1:], 2):
        parser.parse_line(line.strip(), number, is_last=number == len(lines))
    if not text.endswith(("\n\n", "\n\r\n")):
        parser.drop_truncated()
    return {"sysstat": {"hosts": [{"number-of-cpus": int(header[1]), "statistics": parser.reports}]}}


class _Parser:
    """Collects reports line by line. Every report except the last is complete."""

    def __init__(self, name: str) -> None:
        self._name, self._rows = name, 0
        self.reports: list[dict[str, Any]] = []
        # Column names of the current disk or CPU table.
        self._disk_columns: list[str] = []
        self._cpu_columns: list[str] = []

    def parse_line(self, line: str, number: int, *, is_last: bool) -> None:
        where = f"{self._name}, line {number}"
        words = line.split()
        if _TIME.fullmatch(line):
            self.reports.append({"timestamp": line, "disk": []})
            self._disk_columns = []
        elif not words or _HEADER.match(line):
            # iostat ends each table with an empty line.
            self._disk_columns = []
        elif not self.reports:
            raise BadInput(f"{where}: a report without a time: {_RUN_HINT}")
        elif words[0] == _CPU:
            self._cpu_columns = [word.removeprefix("%") for word in words[1:_MAX_COLUMNS]]
        elif words[0].removesuffix(":") == _DEVICE:
            self._disk_columns = words[1:_MAX_COLUMNS]
        elif is_last and len(words) <= len(self._disk_columns):
            # iostat was killed while printing.
            self.reports.pop()
        elif self._cpu_columns:
            self.reports[-1]["avg-cpu"] = _parse_values(self._cpu_columns, words, where)
            self._cpu_columns = []
        elif self._disk_columns:
            self._rows += 1
            if self._rows > _MAX_ROWS:
                raise BadInput(f"{where}: more than {_MAX_ROWS} rows of disks: import a part of the file")
            disk = _parse_values(self._disk_columns, words[1:], where)
            used = {column: value for column, value in disk.items() if _USED_COLUMN.fullmatch(column)}
            self.reports[-1]["disk"].append({"disk_device": words[0]} | used)
        else:
            raise BadInput(f"{where}: {line[:60]!r} is not a line of iostat -x: {_RUN_HINT}")

    def drop_truncated(self) -> None:
        """Drop the last report if disks of the previous report are missing, because the text may be
        truncated."""
        if len(self.reports) > 1 and len(self.reports[-1]["disk"]) < len(self.reports[-2]["disk"]):
            self.reports.pop()


def _parse_values(columns: list[str], words: list[str], where: str) -> dict[str, Any]:
    if any(word.endswith(_HUMAN_SUFFIXES) for word in words):
        raise BadInput(f"{where}: numbers with units (-h, --human) are rounded too coarsely: {_RUN_HINT}")
    if len(words) != len(columns) or not all(_NUMBER.fullmatch(word) for word in words):
        raise BadInput(f"{where}: it does not have one number for each of the {len(columns)} columns")
    return {column: float(word.replace(",", ".")) for column, word in zip(columns, words, strict=True)}
