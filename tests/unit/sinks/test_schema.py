"""The JSON Schema of the lines against the printed output of runs with every kind of content."""

from __future__ import annotations

import copy
import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.owners.cells import OwnedCounts, OwnedWaits, OwnerGrouping, OwnerKey, OwnerKind
from opwatch.owners.sample import OwnerCounts, Owners
from opwatch.sinks.jsonl import build_observation_document
from opwatch.trace.derive import Wait
from opwatch.waf.live import CurrentWaf, make_failed
from tests.schemas import DOCUMENTS, format_schema, update_schema
from tests.section import DOCS
from tests.unit.sinks.test_jsonl import BUSY, make_observation
from tests.unit.support.recordings import format_run, generate_short_run
from tests.unit.support.runs import generate_run

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "schema" / "watch.json").read_text()
)


def forbid_extra_fields(schema: Any) -> Any:  # noqa: ANN401
    """Return the schema with undescribed fields forbidden."""
    if isinstance(schema, list):
        return [forbid_extra_fields(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: forbid_extra_fields(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict):
        closed["additionalProperties"] = False
    return closed


def find_problems(line: dict[str, Any], schema: dict[str, Any] | None = None) -> list[str]:
    """Return the schema violations of a line, for the type in the line."""
    described = schema or forbid_extra_fields(SCHEMA)
    kind = "event" if line.get("type") == "event" else "observation"
    # Validating against a choice would only report that no alternative matched.
    part = {"$ref": f"#/$defs/{kind}", "$defs": described["$defs"]}
    validator = importlib.import_module("jsonschema").Draft202012Validator(part)
    return [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(line)]


def make_lines() -> list[dict[str, Any]]:
    """Return lines of runs, plus values missing from generated runs: firmware figures and queue time."""
    runs = (generate_run(9), generate_short_run())
    busy = make_observation(read=BUSY)
    read = busy.interval.ops["read"]
    waiting = replace(read, throttle=Wait(3, 1, 60, 60, 60), admission=Wait(3, None, 9, 5, 5))
    queued = replace(busy.interval, ops={"read": replace(waiting, queue=read.latency)})
    figure = CurrentWaf(1.5, 0.01, None, 60.0, 3e6, 1e4, "OCP log page C0h", 77)
    waits = OwnedWaits(3, 30, 3, 1, 60, 3, 9)
    owner = OwnerCounts(OwnerKey(OwnerKind.CGROUP, 7), "/db", {"read": OwnedCounts(3, 4096, 9, waits)})
    owners = Owners(OwnerGrouping.CGROUP, (owner,), {}, has_waits=True)
    every = [
        replace(busy, interval=queued, live=figure, owners=owners),
        replace(busy, live=make_failed("it is gone", 7)),
    ]
    return [json.loads(line) for run in runs for line in format_run(run).splitlines()] + [
        json.loads(json.dumps(build_observation_document(one))) for one in every
    ]


def test_schema_is_valid_json_schema() -> None:
    importlib.import_module("jsonschema").Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_of_a_class_is_up_to_date(name: str) -> None:
    text = (DOCS / "schema" / name).read_text()
    assert text == format_schema(update_schema(json.loads(text), DOCUMENTS[name])) + "\n", "run make docs"


def test_every_line_matches_the_schema_exactly() -> None:
    every = make_lines()
    assert {line["type"] for line in every} == {"interval", "summary", "event"}
    for name in ("waf", "discards", "slow", "owners", "arrival", "leaving"):
        assert any(line.get(name) for line in every), name
    assert any(line["discards"]["senders"] for line in every if line.get("discards"))
    for line in every:
        assert not find_problems(line)


def test_busy_operations_with_errors_are_described() -> None:
    tree = json.loads(json.dumps(build_observation_document(make_observation(read=BUSY))))
    assert tree["ops"]["read"]["errors_by_status"]
    assert not find_problems(tree)


def test_every_name_in_the_schema_is_printed() -> None:
    """The schema contains no name that no line has."""
    names = {name for part in SCHEMA["$defs"].values() for name in part["properties"]}
    printed: set[str] = set()

    def collect_names(value: Any) -> None:  # noqa: ANN401
        if isinstance(value, dict):
            printed.update(value)
            for one in value.values():
                collect_names(one)
        elif isinstance(value, list):
            for one in value:
                collect_names(one)

    collect_names(make_lines())
    # No generated run has reads and writes that waited for a discard.
    assert names - printed <= {"op", "max_ns"}


@pytest.mark.parametrize(
    ("field", "value"),
    [("ops", 3), ("device", None), ("schema", "opwatch/2"), ("more", 1), ("begin_mono_ns", 1.5)],
)
def test_other_line_is_invalid(field: str, value: object) -> None:
    line = {**next(line for line in make_lines() if line["type"] == "interval"), field: value}
    [problem] = find_problems(line)
    assert f"'{field}'" in problem


def test_line_with_unknown_fields_is_valid() -> None:
    line = copy.deepcopy(make_lines()[0])
    line["more"] = line["trust"]["more"] = 1
    assert not find_problems(line, SCHEMA)
