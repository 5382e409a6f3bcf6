"""The table of metrics: names, units, labels, order of dropping, and its page."""

from __future__ import annotations

import re

from opwatch.metrics.family import MetricFamily, MetricKind
from opwatch.metrics.table import DROP_ORDER, FAMILIES, LABELS, SERIES_DROPPED, UNEXPLAINED, WATCHED
from tests.metrics_page import PAGE, make_page

UNITS = {"", "seconds", "bytes", "ratio", "celsius"}
# promtool rejects names that contain a type.
TYPES_IN_NAME = re.compile(r"_(counter|gauge|histogram|summary|untyped)(_|$)")
RESERVED_SUFFIXES = ("_bucket", "_count", "_sum", "_created")


def list_name_faults(family: MetricFamily) -> list[str]:
    """Return how a family breaks the conventions of Prometheus and OpenMetrics."""
    faults = []
    is_counter = family.kind is MetricKind.COUNTER
    if is_counter != family.name.endswith("_total"):
        faults.append("only counters end in _total")
    if family.unit not in UNITS or (family.unit and not family.stem.endswith(f"_{family.unit}")):
        faults.append("the name does not end in the unit")
    if not re.fullmatch(r"opwatch_[a-z_]+", family.name) or TYPES_IN_NAME.search(family.name):
        faults.append("a word in the name")
    if family.stem.endswith(RESERVED_SUFFIXES) or "le" in family.labels:
        faults.append("a reserved word")
    if family.kind is MetricKind.HISTOGRAM and family.unit != "seconds":
        faults.append("the buckets are seconds")
    return faults


def test_rule_finds_wrong_names() -> None:
    wrong = (
        MetricFamily("opwatch_io", MetricKind.COUNTER, "", ""),
        MetricFamily("opwatch_io_total", MetricKind.GAUGE, "", ""),
        MetricFamily("opwatch_counter_quantum_bytes", MetricKind.GAUGE, "bytes", ""),
        MetricFamily("opwatch_written", MetricKind.GAUGE, "bytes", ""),
        MetricFamily("opwatch_read_sum", MetricKind.GAUGE, "", ""),
    )
    assert all(list_name_faults(family) for family in wrong)


def test_names_follow_the_conventions() -> None:
    assert {family.name: faults for family in FAMILIES if (faults := list_name_faults(family))} == {}
    assert len({family.stem for family in FAMILIES}) == len(FAMILIES)


def test_help_texts_need_no_escapes() -> None:
    assert [family.name for family in FAMILIES if not family.help or set(family.help) & set('\\"\n')] == []


def test_every_label_is_explained() -> None:
    assert {label for family in FAMILIES for label in family.labels} == set(LABELS)


def test_families_in_drop_order_are_unique_and_not_those_about_trust() -> None:
    names = [family.name for family in DROP_ORDER]
    assert len(set(names)) == len(names)
    assert set(DROP_ORDER) < set(FAMILIES)
    assert not {UNEXPLAINED, WATCHED, SERIES_DROPPED} & set(DROP_ORDER)


def test_page_is_current() -> None:
    assert PAGE.read_text() == make_page(), "run python -m tests.metrics_page"
