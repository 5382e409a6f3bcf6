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
from opwatch.sinks.columns import COLUMNS
from opwatch.sinks.jsonl import build_observation_document
from opwatch.sinks.terminal import Writer
from opwatch.units import replace_unprintable

_FORMULA = ("=", "+", "-", "@")
_OPS = ("read", "write", "discard", "flush")
_OP_FIELDS = tuple(column.paths[0] for column in COLUMNS if column.is_usual)
# Default fields of a table.
DEFAULT_FIELDS = (
    *("time", "device", "interval_s"),
    *(f"ops.{op}.{field}" for op in _OPS for field in _OP_FIELDS),
    *("waf.waf", "waf.waf_error", "waf.nand_bytes_per_s", "unexplained", "cpu.busy_cores", "explained"),
)
# Default fields of a table of slow requests, one row per request.
SLOW_FIELDS = (
    *("time", "device", "op", "sector", "bytes", "latency_ns", "queue_ns", "submitter", "pid", "name"),
    "cgroup",
)


def get_field(tree: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401
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
            where = f"{place} has {names}" if names and walked else names or f"{place} has no fields"
            raise UsageError(f"there is no field {path}: {where}")
        value = value[name]
        walked.append(name)
    return value


def format_csv_cell(value: object) -> str:
    """Return a value as CSV text. An unknown value is empty, which differs from 0."""
    if value is None:
        return ""
    if isinstance(value, (Mapping, list)):
        return replace_unprintable(json.dumps(value))
    text = replace_unprintable(str(value))
    # A spreadsheet would run a text with such a prefix as a formula.
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


def format_csv_line(cells: Sequence[str]) -> str:
    """Return a line of RFC 4180, without its end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


class _RowSink:
    """A row per interval and device, without summaries and events. With `slow`, a row per slow request in
    completion order."""

    def __init__(self, stream: TextIO, fields: Sequence[str], *, slow: bool = False) -> None:
        self._writer, self._fields, self._slow = Writer(stream), fields, slow

    def begin_output(self, notes: list[str]) -> None:
        """Do nothing: notes are messages, and the command prints them to stderr."""

    def write_event(self, event: Event) -> None:
        """Do nothing: a table has no row for an event."""

    def _make_rows(self, observation: Observation) -> list[list[object]]:
        """Return the rows of an observation, each with the values of the fields."""
        trees = [build_observation_document(observation)]
        if self._slow:
            slow = trees[0]["slow"]
            requests = sorted(slow["requests"], key=lambda one: int(one["end_mono_ns"])) if slow else []
            trees = [{"device": observation.device, **request} for request in requests]
        return [[get_field(tree, path) for path in self._fields] for tree in trees]


class CsvRows(_RowSink):
    """RFC 4180 with a header line. Unknown values are empty."""

    _is_begun = False

    def write_observation(self, observation: Observation) -> None:
        if observation.final:
            return
        # Build the rows before the header, so that an invalid field is refused before anything is printed.
        rows = [[format_csv_cell(value) for value in values] for values in self._make_rows(observation)]
        if not self._is_begun:
            self._is_begun = True
            self._writer.write_line(format_csv_line(self._fields))
        for cells in rows:
            self._writer.write_line(format_csv_line(cells))


class JsonRows(_RowSink):
    """One flat object per row."""

    def write_observation(self, observation: Observation) -> None:
        if observation.final:
            return
        for values in self._make_rows(observation):
            self._writer.write_json(dict(zip(self._fields, values, strict=True)))
