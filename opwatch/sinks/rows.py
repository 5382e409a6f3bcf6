"""Observations as rows of chosen fields: CSV, or JSON lines of these fields alone.

A field is the path to it in the JSON document of an observation: `ops.read.latency_ns.p99`.
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
# What a table begins with, when nobody says what is wanted.
USUAL = (
    *("time", "device", "interval_s"),
    *(f"ops.{op}.{field}" for op in _OPS for field in _OF_OPS),
    *("waf.waf", "waf.waf_error", "waf.nand_bytes_per_s", "unexplained", "cpu.busy_cores", "explained"),
)
# What a table of slow requests begins with, where each is a row.
SLOW = (
    *("time", "device", "op", "sector", "bytes", "latency_ns", "queue_ns", "submitter", "pid", "name"),
    "cgroup",
)


def field_of(tree: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401
    """What a path leads to; None where nothing is known on the way. UsageError where there is no such way."""
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
    """A value as text of CSV. It is empty for what is not known, which is another thing than 0."""
    if value is None:
        return ""
    if isinstance(value, (Mapping, list)):
        return printable(json.dumps(value))
    text = printable(str(value))
    # A spreadsheet takes a text that begins so for a formula, and runs it.
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text


class _Rows:
    """A row for each interval of each device; summaries and events are none. `slow`: a row for each slow
    request instead, in the order in which they ended."""

    def __init__(self, stream: TextIO, fields: Sequence[str], *, slow: bool = False) -> None:
        self._writer, self._fields, self._slow = Writer(stream), fields, slow

    def begin(self, notes: list[str]) -> None:
        """Notes are talk, not data: the command prints them to stderr."""

    def tell(self, event: Event) -> None:
        """A table has no place for it."""

    def _rows(self, observation: Observation) -> list[list[object]]:
        """The values of its fields."""
        trees = [document(observation)]
        if self._slow:
            slow = trees[0]["slow"]
            requests = sorted(slow["requests"], key=lambda one: int(one["end_mono_ns"])) if slow else []
            trees = [{"device": observation.device, **request} for request in requests]
        return [[field_of(tree, path) for path in self._fields] for tree in trees]


class CsvRows(_Rows):
    """RFC 4180 with a line of names; what is not known is empty."""

    _is_begun = False

    def write(self, observation: Observation) -> None:
        if observation.final:
            return
        # Before the names: a field that there is not is refused with nothing printed.
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
    """One flat object a row."""

    def write(self, observation: Observation) -> None:
        if observation.final:
            return
        for values in self._rows(observation):
            self._writer.json(dict(zip(self._fields, values, strict=True)))
