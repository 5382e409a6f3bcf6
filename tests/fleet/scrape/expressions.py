"""Expressions of dashboards and rules: the queries of a JSON file, and the metrics and labels in a query."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from opwatch.metrics import table
from opwatch.metrics.family import MetricKind

_METRIC = re.compile(r"(?<![\w:\"/])opwatch_\w+")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)(?!=)\s*\"\"")
_LABEL_LIST = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
# Labels of the server and of histograms.
SERVER_LABELS = frozenset(("job", "instance", "le", "alertname", "alertstate"))


def list_series_names() -> frozenset[str]:
    """Return every name under which a family of the table is stored in a server."""
    names = set[str]()
    for family in table.FAMILIES:
        names.add(family.name)
        if family.kind is MetricKind.HISTOGRAM:
            names |= {f"{family.name}_{suffix}" for suffix in ("bucket", "count", "sum")}
    return frozenset(names)


def find_metrics(expression: str) -> set[str]:
    """Return the metrics of opwatch that an expression reads."""
    return set(_METRIC.findall(_TEXT.sub('""', expression)))


def find_labels(expression: str) -> set[str]:
    """Return the labels that an expression selects, groups or matches by."""
    bare = _TEXT.sub('""', expression)
    lists = (name.strip() for names in _LABEL_LIST.findall(bare) for name in names.split(","))
    return {name for name in lists if name} | set(_LABEL.findall(bare))


def list_queries(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield (panel, expression, whether it is an instant query) of each target."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target.get("instant", False)


def insert_variables(expression: str, values: Mapping[str, str]) -> str:
    """Return the expression with the values of the dashboard's and of Grafana's own variables."""
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], expression)
