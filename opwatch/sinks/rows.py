"""Observations as rows of selected fields: CSV, or JSON lines of the selected fields alone.

A field is named by the path in the JSON document of an observation: `ops.read.latency_ns.p99`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from opwatch.errors import UsageError
from opwatch.samples.observation import Event, Observation
from opwatch.sinks.jsonl import document
from opwatch.sinks.terminal import Writer
from opwatch.units import printable

_FORMULA = ("=", "+", "-", "@")
_OPS = ("read", "write", "discard", "flush")
_OF_OPS = ("per_s", "bytes_per_s", "latency_ns.mean", "latency_ns.p50", "latency_ns.p99", "latency_ns.max")
# Default fields of a table.
USUAL = (
    *("time", "device", "interval_s"),
    *(f"ops.{op}.{field}" for op in _OPS for field in _OF_OPS),
    *("waf.waf", "waf.waf_error", "waf.nand_bytes_per_s", "unexplained", "cpu.busy_cores", "explained"),
)
# Default fields of a table of slow requests, one row per request.
SLOW = (
    *("time", "device", "op", "sector", "bytes", "latency_ns", "queue_ns", "submitter", "pid", "name"),
    "cgroup",
)


def field_of(tree: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401
    """Return the value at a path, or None if a value on the path is unknown. Raise UsageError for an invalid
    path."""
    value: Any = tree
    walked: list[str] = []
    for name in path.split("."):
        if value is None:
            return None
        if not isinstance(value, Mapping) or name not in value:
            place = ".".join(walked)
            names = ", ".join(value) if isinstance(value, Mapping) else ""
            where = f"{place} has {names}" if names and walked else names or f"{place} has no parts"
            raise UsageError(f"there is no field {path}: {where}")
        value = value[name]
        walked.append(name)
    return value


def _cell(value: object) -> str:
    """Return a value as CSV text. An unknown value is empty, which differs from 0."""
    if value is None:
        return ""
    if isinstance(value, (Mapping, list)):
        return printable(json.dumps(value))
    text = printable(str(value))
    # A spreadsheet would run a text with such a prefix as a formula.
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


class _Rows:
    """A row per interval and device, without summaries and events. With `slow`, a row per slow request in
    completion order."""

    def __init__(self, stream: TextIO, fields: Sequence[str], *, slow: bool = False) -> None:
        self._writer, self._fields, self._slow = Writer(stream), fields, slow

    def begin(self, notes: list[str]) -> None:
        """Do nothing: notes are messages, and the command prints them to stderr."""

    def tell(self, event: Event) -> None:
        """Do nothing: a table has no row for an event."""

    def _rows(self, observation: Observation) -> list[list[object]]:
        """Return the rows of an observation, each with the values of the fields."""
        trees = [document(observation)]
        if self._slow:
            slow = trees[0]["slow"]
            requests = sorted(slow["requests"], key=lambda one: int(one["end_mono_ns"])) if slow else []
            trees = [{"device": observation.device, **request} for request in requests]
        return [[field_of(tree, path) for path in self._fields] for tree in trees]


class CsvRows(_Rows):
    """RFC 4180 with a header line. Unknown values are empty."""

    _is_begun = False

    def write(self, observation: Observation) -> None:
        if observation.final:
            return
        # Build the rows before the header, so that an invalid field is refused before anything is printed.
        rows = [[_cell(value) for value in values] for values in self._rows(observation)]
        if not self._is_begun:
            self._is_begun = True
            self._line(self._fields)
        for cells in rows:
            self._line(cells)

    def _line(self, cells: Sequence[str]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(cells)
        self._writer.line(text.getvalue())


class JsonRows(_Rows):
    """One flat object per row."""

    def write(self, observation: Observation) -> None:
        if observation.final:
            return
        for values in self._rows(observation):
            self._writer.json(dict(zip(self._fields, values, strict=True)))
