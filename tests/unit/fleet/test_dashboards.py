"""The dashboards without a server: current, and only with metrics, labels and variables that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from opwatch.metrics import table
from tests.fleet.scrape.alerts import RULES
from tests.fleet.scrape.dashboards import FOLDER, build_all
from tests.fleet.scrape.expressions import (
    SERVER_LABELS,
    find_labels,
    find_metrics,
    insert_variables,
    list_queries,
    list_series_names,
)

NAMES = ("opwatch-fleet", "opwatch-host", "opwatch-drive")
LABELS = SERVER_LABELS | {label for family in table.FAMILIES for label in family.labels}
# Units of @grafana/data that the dashboards use.
UNITS = {"bool_yes_no", "short", "s", "bytes", "Bps", "iops", "percentunit", "celsius", "dateTimeFromNow"}
_VARIABLE = re.compile(r"\$\{?(\w+)")


def read_dashboard(name: str) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return dashboard


def test_files_are_those_that_the_generator_writes() -> None:
    """Run `python -m tests.fleet.scrape.dashboards --write` after a change."""
    assert {path.name: path.read_text() for path in FOLDER.glob("*.json")} == build_all()


@pytest.mark.parametrize("name", NAMES)
def test_queries_use_metrics_and_labels_of_the_table(name: str) -> None:
    queries = list(list_queries(read_dashboard(name)))
    assert len(queries) > 15
    for _, expression, _ in queries:
        assert find_metrics(expression) <= list_series_names(), expression
        assert find_labels(expression) <= LABELS, expression


@pytest.mark.parametrize("name", NAMES)
def test_variables_are_defined_before_use(name: str) -> None:
    dashboard = read_dashboard(name)
    variables = [variable["name"] for variable in dashboard["templating"]["list"]]
    builtin = {"__rate_interval", "__range"}
    used = {match for _, expression, _ in list_queries(dashboard) for match in _VARIABLE.findall(expression)}
    assert used <= {*variables, *builtin}
    for number, variable in enumerate(dashboard["templating"]["list"]):
        earlier = set(variables[:number])
        assert set(_VARIABLE.findall(json.dumps(variable["query"]))) <= earlier


@pytest.mark.parametrize("name", NAMES)
def test_panels_do_not_overlap_and_have_known_units(name: str) -> None:
    panels = read_dashboard(name)["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)
    units = {panel["fieldConfig"]["defaults"]["unit"] for panel in panels if "fieldConfig" in panel}
    assert units <= UNITS


@pytest.mark.parametrize("name", NAMES)
def test_each_dashboard_says_which_numbers_cannot_be_trusted(name: str) -> None:
    titles = {title for title, _, _ in list_queries(read_dashboard(name))}
    assert "Cannot be trusted because" in titles


def test_drive_has_heat_maps_waf_with_bounds_and_endurance_bounds() -> None:
    panels = read_dashboard("opwatch-drive")["panels"]
    assert sum(panel["type"] == "heatmap" for panel in panels) == 2
    (waf,) = [panel for panel in panels if panel["title"] == "Write amplification with its error"]
    assert [target["legendFormat"] for target in waf["targets"]] == ["at least", "ratio", "at most"]


def test_rules_use_metrics_and_labels_of_the_table() -> None:
    text = RULES.read_text()
    expressions = re.findall(r"^ +expr: (?:\|\n((?: {10,}.*\n)+)|(.+)\n)", text, re.MULTILINE)
    assert len(expressions) == text.count("expr:") > 20
    for block, line in expressions:
        assert find_metrics(block or line) <= list_series_names(), block or line
        assert find_labels(block or line) <= LABELS, block or line


def test_metrics_and_labels_are_found_in_an_expression() -> None:
    expression = 'sum by (a, b) (rate(opwatch_x_total{c=~"opwatch_y"}[5m])) * on (d) group_left (e) opwatch_z'
    assert find_metrics(expression) == {"opwatch_x_total", "opwatch_z"}
    assert find_labels(expression) == {"a", "b", "c", "d", "e"}
    assert insert_variables("x[$w] + $x_y", {"w": "5m", "x_y": "1"}) == "x[5m] + 1"


def test_the_host_shows_the_version_and_a_missing_broker_in_words() -> None:
    panels = {panel["title"]: panel for panel in read_dashboard("opwatch-host")["panels"]}
    version, broker = panels["Version"], panels["Broker answers"]
    assert version["options"]["textMode"] == "name" and version["targets"][0]["legendFormat"] == "{{version}}"
    assert broker["fieldConfig"]["defaults"]["noValue"] == "not used"
    assert "vector" not in broker["targets"][0]["expr"]
