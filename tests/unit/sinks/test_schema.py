"""The JSON Schema of the lines against the printed output of runs with every kind of content."""

from __future__ import annotations

import copy
import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.sinks.jsonl import document
from opwatch.waf.live import Live, failed
from tests.unit.sinks.test_jsonl import BUSY, observation
from tests.unit.support.recordings import short_run, shown
from tests.unit.support.runs import a_run

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "schema" / "watch.json").read_text()
)


def strict(schema: Any) -> Any:  # noqa: ANN401
    """Return the schema with undescribed fields forbidden."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: strict(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict):
        closed["additionalProperties"] = False
    return closed


def problems(line: dict[str, Any], schema: dict[str, Any] | None = None) -> list[str]:
    """Return the schema violations of a line, for the type in the line."""
    described = schema or strict(SCHEMA)
    kind = "event" if line.get("type") == "event" else "observation"
    # Validating against a choice would only report that no alternative matched.
    part = {"$ref": f"#/$defs/{kind}", "$defs": described["$defs"]}
    validator = importlib.import_module("jsonschema").Draft202012Validator(part)
    return [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(line)]


def lines() -> list[dict[str, Any]]:
    """Return lines of runs, plus values missing from generated runs: firmware figures and queue time."""
    runs = (a_run(9), short_run())
    busy = observation(read=BUSY)
    read = busy.interval.ops["read"]
    queued = replace(busy.interval, ops={"read": replace(read, queue=read.latency)})
    figure = Live(1.5, 0.01, None, 60.0, 3e6, 1e4, "OCP log page C0h", 77)
    every = [replace(busy, interval=queued, live=figure), replace(busy, live=failed("it is gone", 7))]
    return [json.loads(line) for run in runs for line in shown(run).splitlines()] + [
        json.loads(json.dumps(document(one))) for one in every
    ]


def test_schema_is_valid_json_schema() -> None:
    importlib.import_module("jsonschema").Draft202012Validator.check_schema(SCHEMA)


def test_every_line_matches_the_schema_exactly() -> None:
    every = lines()
    assert {line["type"] for line in every} == {"interval", "summary", "event"}
    for name in ("waf", "discards", "slow", "owners", "arrival", "leaving"):
        assert any(line.get(name) for line in every), name
    assert any(line["discards"]["senders"] for line in every if line.get("discards"))
    for line in every:
        assert not problems(line)


def test_busy_operations_with_errors_are_described() -> None:
    tree = json.loads(json.dumps(document(observation(read=BUSY))))
    assert tree["ops"]["read"]["errors_by_status"]
    assert not problems(tree)


def test_every_name_in_the_schema_is_printed() -> None:
    """The schema contains no name that no line has."""
    names = {name for part in SCHEMA["$defs"].values() for name in part["properties"]}
    printed: set[str] = set()

    def collect(value: Any) -> None:  # noqa: ANN401
        if isinstance(value, dict):
            printed.update(value)
            for one in value.values():
                collect(one)
        elif isinstance(value, list):
            for one in value:
                collect(one)

    collect(lines())
    # No generated run has reads and writes that waited for a discard.
    assert names - printed <= {"op", "max_ns"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ops": 3}, "3 is not of type 'object'"),
        ({"device": None}, "None is not of type 'string'"),
        ({"schema": "opwatch/2"}, "'opwatch/1' was expected"),
        ({"more": 1}, "'more' was unexpected"),
        ({"begin_mono_ns": 1.5}, "1.5 is not of type 'integer'"),
    ],
)
def test_other_line_is_invalid(change: dict[str, Any], words: str) -> None:
    line = {**next(line for line in lines() if line["type"] == "interval"), **change}
    assert any(words in problem for problem in problems(line))


def test_line_with_unknown_fields_is_valid() -> None:
    line = copy.deepcopy(lines()[0])
    line["more"] = line["trust"]["more"] = 1
    assert not problems(line, SCHEMA)
