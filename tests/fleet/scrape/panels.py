"""Panels of Grafana dashboards, as the dictionaries of their JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
# A dashboard is 24 columns wide.
WIDTH = 24


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and the legend of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel before it gets its place. `kind` is Grafana's type."""

    kind: str
    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    description: str = ""
    width: int = 8
    height: int = 8
    # Colours of stats: (value from which, colour).
    steps: tuple[tuple[float, str], ...] = ()
    # What a stat shows: its value, or the legend of its series.
    text: str = "auto"
    # What a panel shows if no series exists.
    nothing: str = ""
    # Columns that a table hides.
    hidden: tuple[str, ...] = ()
    names: tuple[tuple[str, str], ...] = ()


def _build_options(panel: Panel) -> Json:
    if panel.kind == "timeseries":
        return {
            "legend": {"calcs": [], "displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    if panel.kind == "stat":
        return {
            "colorMode": "value",
            "graphMode": "none",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": panel.text,
        }
    if panel.kind == "heatmap":
        return {
            "calculate": False,
            "cellGap": 0,
            "color": {
                "mode": "scheme",
                "scheme": "Oranges",
                "fill": "dark-orange",
                "steps": 64,
                "exponent": 0.5,
                "reverse": False,
            },
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"unit": panel.unit, "axisPlacement": "left"},
        }
    return {"showHeader": True, "cellHeight": "sm"}


def _build_target(panel: Panel, query: Query, number: int) -> Json:
    target: Json = {
        "refId": chr(ord("A") + number),
        "datasource": DATASOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
    }
    if panel.kind in ("table", "stat"):
        target |= {"instant": True, "range": False}
    if panel.kind == "table":
        target["format"] = "table"
    if panel.kind == "heatmap":
        target["format"] = "heatmap"
    return target


def _build_transformations(panel: Panel) -> list[Json]:
    if panel.kind != "table":
        return []
    hidden = dict.fromkeys(("Time", "__name__", "job", *panel.hidden), True)
    return [
        {
            "id": "organize",
            "options": {"excludeByName": hidden, "indexByName": {}, "renameByName": dict(panel.names)},
        }
    ]


def build_panel(panel: Panel, number: int, x: int, y: int) -> Json:
    """Return a panel at its place."""
    steps = [{"color": "green", "value": None}, *({"color": c, "value": v} for v, c in panel.steps)]
    defaults: Json = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.nothing:
        defaults["noValue"] = panel.nothing
    if panel.kind == "timeseries":
        defaults["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 5, "showPoints": "never"}
    built = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": x, "y": y},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _build_options(panel),
        "targets": [_build_target(panel, query, index) for index, query in enumerate(panel.queries)],
    }
    if transformations := _build_transformations(panel):
        built["transformations"] = transformations
    return built


def build_panels(rows: Sequence[tuple[str, Sequence[Panel]]]) -> list[Json]:
    """Return the panels of rows with titles, from left to right and from top to bottom."""
    built: list[Json] = []
    y = 0
    for title, panels in rows:
        built.append(
            {
                "id": len(built) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
                "panels": [],
            }
        )
        y += 1
        x = height = 0
        for panel in panels:
            if x + panel.width > WIDTH:
                x, y, height = 0, y + height, 0
            built.append(build_panel(panel, len(built) + 1, x, y))
            x += panel.width
            height = max(height, panel.height)
        y += height
    return built


def build_variable(name: str, label: str, query: str, *, many: bool = False) -> Json:
    """Return a variable with the values of a label."""
    variable: Json = {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
    }
    if many:
        variable |= {"allValue": ".*", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}
    return variable


def build_dashboard(
    uid: str, title: str, variables: Sequence[Json], rows: Sequence[tuple[str, Sequence[Panel]]]
) -> Json:
    """Return a dashboard."""
    source = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
    }
    link = {
        "asDropdown": False,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "tags": ["opwatch"],
        "targetBlank": False,
        "title": "opwatch",
        "tooltip": "",
        "type": "dashboards",
        "url": "",
    }
    return {
        "uid": uid,
        "title": title,
        "description": "Made for the metrics of opwatch exporter, with native histograms or classic buckets.",
        "tags": ["opwatch"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [link],
        "annotations": {"list": []},
        "templating": {"list": [source, *variables]},
        "panels": build_panels(rows),
    }
