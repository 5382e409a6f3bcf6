"""Pictures of dashboards: the parts of a panel, and every panel on its page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opwatch.sinks.report.plots.markup import escape_text
from opwatch.sinks.report.plots.scales import EXTENT, make_linear_axis, make_time_axis
from tests.fleet.scrape.dashboards import FOLDER
from tests.fleet.scrape.plan import FaultKind
from tests.pictures.board_page import (
    Board,
    format_legend,
    format_value,
    list_cells,
    place_points,
    render_board,
)
from tests.pictures.boards import find_drive, make_plan

NAMES = ("opwatch-fleet", "opwatch-host", "opwatch-drive")
VALUES = {
    **{"host": "h", "device": "d", "model": ".*", "waf_window": "6h"},
    **{"__rate_interval": "40m", "__range": "24h"},
}


class FakeServer:
    """Answers each query with two series, and remembers the queries."""

    def __init__(self) -> None:
        self.queries = list[str]()

    def query_range(
        self, expression: str, begin_s: float, end_s: float, step_s: float
    ) -> list[dict[str, Any]]:
        self.queries.append(expression)
        values = [[begin_s + step_s, "3"], [end_s, "5"]]
        return [{"metric": {"le": bound}, "values": values} for bound in ("0.001", "0.002")]

    def query(self, expression: str, time_s: float | None = None) -> list[dict[str, Any]]:
        self.queries.append(expression)
        return [{"metric": {"device": "a & b"}, "value": [time_s, "7"]}]


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_is_on_the_page_with_the_answers_of_its_queries(name: str) -> None:
    content = json.loads((FOLDER / f"{name}.json").read_text())
    server = FakeServer()
    html = render_board(Board(content, server, VALUES, 0, 86_400, 600))  # type: ignore[arg-type]
    assert [panel["title"] for panel in content["panels"] if escape_text(panel["title"]) not in html] == []
    assert "a &amp; b" in html and "a & b" not in html
    assert len(server.queries) == sum(len(panel.get("targets", ())) for panel in content["panels"])
    assert not any("$" in query for query in server.queries)


def test_heat_cells_are_the_growth_between_bounds() -> None:
    series = [
        ("", {"le": "0.001"}, [(0.0, 1.0), (600.0, 0.0)]),
        ("", {"le": "0.002"}, [(0.0, 4.0), (600.0, 0.0)]),
        ("", {"le": "+Inf"}, [(0.0, 4.0), (600.0, 0.0)]),
    ]
    first, second = list_cells(series)
    assert first == pytest.approx((0.0, 0.001 / 2**0.5, 0.001, 0.25))
    assert second == (0.0, 0.001, 0.002, 0.75)


def test_lines_have_gaps_where_samples_are_missing() -> None:
    x, y = make_time_axis(1000), make_linear_axis(10)
    points = [(0.0, 0.0), (100.0, 10.0), (500.0, 10.0), (600.0, float("nan")), (700.0, 5.0)]
    placed = list(place_points(points, x, y, 1.0, 100.0))
    assert placed == [(0, EXTENT), (1000, 0), None, (5000, 0), None, (7000, EXTENT // 2)]


def test_values_have_their_units() -> None:
    assert format_value(0.0015, "s", 0) == "1.50 ms"
    assert format_value(3600.0, "s", 0) == "60 min"
    assert format_value(1000 * (100 + 86_400 * 3), "dateTimeFromNow", 100) == "in 3 d"
    assert format_value(0.5, "percentunit", 0) == "50 %"
    assert format_value(0.0, "s", 0) == "0 s"
    assert format_value(38.0, "celsius", 0) == "38 °C"
    assert format_value(1.0, "bool_yes_no", 0) == "Yes"
    assert format_value(12_345.0, "short", 0) == "12,345"
    assert format_legend("{{device}} {{op}}", {"device": "sda", "op": "read"}) == "sda read"
    assert format_legend("__auto", {"__name__": "x", "job": "opwatch", "serial": "S1"}) == "S1"


def test_the_simulated_day_has_a_drive_with_each_fault() -> None:
    plan = make_plan()
    assert all(plan.list_faulty(kind) for kind in FaultKind)
    drive = find_drive(plan)
    assert drive in plan.list_faulty(FaultKind.WAF_JUMP)
