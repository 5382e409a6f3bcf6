"""Prometheus text 0.0.4 and OpenMetrics 1.0."""

from __future__ import annotations

from collections.abc import Iterable

from opwatch.metrics.buckets import CLASSIC_BOUNDS, accumulate_classic
from opwatch.metrics.family import (
    DurationCounts,
    LabelValues,
    MetricFamily,
    MetricKind,
    MetricRow,
    MetricSamples,
    Number,
)
from opwatch.metrics.label_text import clean_label
from opwatch.metrics.table import FAMILIES

_IN_LABEL = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
# OpenMetrics escapes quotes in help texts, too; the table has none.
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_EXACT = 1 << 53
INFINITE_BOUND = "+Inf"


def format_number(value: Number) -> str:
    """Return a value as both formats write it."""
    if isinstance(value, int):
        return str(value)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if abs(value) < _EXACT and value == int(value) else repr(value)


def format_pairs(names: Iterable[str], values: LabelValues) -> str:
    """Return the label pairs without braces."""
    return ",".join(
        f'{name}="{clean_label(value).translate(_IN_LABEL)}"'
        for name, value in zip(names, values, strict=True)
    )


def format_head(family: MetricFamily, *, is_openmetrics: bool) -> str:
    """Return the lines before the samples of a family."""
    name = family.stem if is_openmetrics else family.name
    unit = f"# UNIT {name} {family.unit}\n" if is_openmetrics and family.unit else ""
    help_text = family.help.translate(_IN_HELP)
    return f"# HELP {name} {help_text}\n# TYPE {name} {family.kind}\n{unit}"


def list_bucket_names(family: MetricFamily, pairs: str, *, has_buckets: bool = True) -> list[str]:
    """Return the sample names of a histogram with their labels: its buckets, the number and the sum."""
    bounds = [*(map(repr, CLASSIC_BOUNDS) if has_buckets else ()), INFINITE_BOUND]
    braced = f"{{{pairs}}}" if pairs else ""
    before = f"{family.name}_bucket{{{pairs}{',' if pairs else ''}"
    names = [f'{before}le="{bound}"}}' for bound in bounds]
    return [*names, f"{family.name}_count{braced}", f"{family.name}_sum{braced}"]


class _TextFamily:
    """The encoded parts of a family's previous answer, by label values."""

    __slots__ = ("family", "head", "prefixes", "templates", "texts")

    def __init__(self, family: MetricFamily, *, is_openmetrics: bool) -> None:
        self.family = family
        self.head = format_head(family, is_openmetrics=is_openmetrics)
        self.prefixes: dict[LabelValues, str] = {}
        # With and without buckets.
        self.templates: dict[tuple[LabelValues, bool], str] = {}
        self.texts: dict[LabelValues, tuple[int, float, str]] = {}

    def encode_rows(self, rows: list[MetricRow], parts: list[str]) -> None:
        """Append the lines of the rows. Of rows with equal labels, the first counts."""
        if self.family.kind is MetricKind.HISTOGRAM:
            self._encode_histograms(rows, parts)
            return
        known, self.prefixes = self.prefixes, {}
        for labels, value in rows:
            if labels in self.prefixes or isinstance(value, DurationCounts):
                continue
            prefix = known.get(labels) or self._make_prefix(labels)
            self.prefixes[labels] = prefix
            parts.append(f"{prefix}{value if type(value) is int else format_number(value)}\n")

    def _make_prefix(self, labels: LabelValues) -> str:
        pairs = format_pairs(self.family.labels, labels)
        return f"{self.family.name}{{{pairs}}} " if pairs else f"{self.family.name} "

    def _encode_histograms(self, rows: list[MetricRow], parts: list[str]) -> None:
        known, self.texts = self.texts, {}
        templates, self.templates = self.templates, {}
        for labels, value in rows:
            if labels in self.texts or not isinstance(value, DurationCounts):
                continue
            key = labels, value.has_buckets
            template = templates.get(key) or self._make_template(*key)
            self.templates[key] = template
            before = known.get(labels)
            # Counters only grow: with an equal number and sum, nothing changed.
            if before is None or before[:2] != (value.total, value.sum_s):
                before = value.total, value.sum_s, self._fill_template(template, value)
            self.texts[labels] = before
            parts.append(before[2])

    def _make_template(self, labels: LabelValues, has_buckets: bool) -> str:
        pairs = format_pairs(self.family.labels, labels).replace("%", "%%")
        *counts, total = list_bucket_names(self.family, pairs, has_buckets=has_buckets)
        return "".join(f"{name} %d\n" for name in counts) + f"{total} %s\n"

    def _fill_template(self, template: str, value: DurationCounts) -> str:
        counts = accumulate_classic(value) if value.has_buckets else []
        return template % (*counts, value.total, value.total, format_number(value.sum_s))


class TextEncoder:
    """Encodes one answer after the other."""

    def __init__(self, *, is_openmetrics: bool) -> None:
        self._is_openmetrics = is_openmetrics
        self._families = [_TextFamily(family, is_openmetrics=is_openmetrics) for family in FAMILIES]

    def encode(self, samples: MetricSamples, *, with_classic_buckets: bool = True) -> bytes:
        """Return the answer. Text has no other buckets than the classic ones."""
        parts: list[str] = []
        for encoded in self._families:
            rows = samples.rows.get(encoded.family.name)
            if rows:
                parts.append(encoded.head)
                encoded.encode_rows(rows, parts)
        if self._is_openmetrics:
            parts.append("# EOF\n")
        return "".join(parts).encode()
