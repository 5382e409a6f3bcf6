"""Metric families, and the samples collected for one answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

Number = int | float
# Label values in the order of the family's labels.
LabelValues = tuple[str, ...]


class MetricKind(StrEnum):
    """Type of a family, as the formats spell it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """A family: its name as exposed (a counter's ends in `_total`), its base unit, and its labels in order.

    `source` names the option that adds the family, empty for the default set; `absent` says when a series
    is missing, empty if it is always there. `note` is for the documentation alone: `help` is in every
    answer, so it is short."""

    name: str
    kind: MetricKind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    source: str = ""
    absent: str = ""
    note: str = ""

    @property
    def stem(self) -> str:
        """Return the name without a counter's suffix, as OpenMetrics names the family."""
        return self.name.removesuffix("_total") if self.kind is MetricKind.COUNTER else self.name


class DurationCounts(NamedTuple):
    """A histogram: the slots of `trace.abi.LATENCY` in use, the running total up to each, and the exact sum.

    Without `has_buckets`, only the number and the sum of the durations are known; `running` then has the
    number alone.
    """

    slots: Sequence[int]
    running: Sequence[int]
    sum_s: float
    has_buckets: bool = True

    @property
    def total(self) -> int:
        return self.running[-1] if self.running else 0


MetricValue = int | float | DurationCounts
MetricRow = tuple[LabelValues, MetricValue]


class MetricSamples:
    """The samples of one answer: rows of (label values, value) by family name."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows: dict[str, list[MetricRow]] = {}

    def add(self, family: MetricFamily, value: MetricValue, *labels: str) -> None:
        """Add a sample. The label values are in the order of the family's labels."""
        rows = self.rows.get(family.name)
        if rows is None:
            rows = self.rows[family.name] = []
        rows.append((labels, value))

    def merge(self, other: MetricSamples) -> None:
        """Add the samples of `other`, for example those cached since a drive was read."""
        for name, rows in other.rows.items():
            self.rows.setdefault(name, []).extend(rows)
