"""Metrics as a document of OTLP/HTTP in JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

from opwatch.metrics.buckets import NATIVE_SCHEMA, count_native
from opwatch.metrics.family import DurationCounts, MetricFamily, MetricKind, MetricRow, MetricSamples
from opwatch.metrics.table import FAMILIES

_CUMULATIVE = 2
_UNITS = {"bytes": "By", "seconds": "s", "ratio": "1", "celsius": "Cel"}
_Json = dict[str, object]


def encode_document(
    samples: MetricSamples, resource: Mapping[str, str], version: str, start_ns: int, now_ns: int
) -> bytes:
    """Return the request body. Counters are cumulative since `start_ns`."""
    times: _Json = {"startTimeUnixNano": str(start_ns), "timeUnixNano": str(now_ns)}
    metrics = [
        _make_metric(family, rows, times) for family in FAMILIES if (rows := samples.rows.get(family.name))
    ]
    scope = {"scope": {"name": "opwatch", "version": version}, "metrics": metrics}
    document = {
        "resourceMetrics": [{"resource": {"attributes": _make_attributes(resource)}, "scopeMetrics": [scope]}]
    }
    return json.dumps(document, separators=(",", ":")).encode("utf-8", "replace")


def _make_attributes(labels: Mapping[str, str]) -> list[_Json]:
    # JSON cannot hold lone surrogates of names that are not UTF-8.
    return [
        {"key": name, "value": {"stringValue": value.encode("utf-8", "replace").decode()}}
        for name, value in labels.items()
    ]


def _make_metric(family: MetricFamily, rows: list[MetricRow], times: _Json) -> _Json:
    """Return a metric. Its name is without `_total`, which servers add to counters."""
    points = [
        times
        | {"attributes": _make_attributes(dict(zip(family.labels, labels, strict=True)))}
        | (_make_histogram(value) if isinstance(value, DurationCounts) else _make_number(value))
        for labels, value in rows
    ]
    metric: _Json = {"name": family.stem, "description": family.help, "unit": _UNITS.get(family.unit, "")}
    if family.kind is MetricKind.HISTOGRAM:
        metric["exponentialHistogram"] = {"aggregationTemporality": _CUMULATIVE, "dataPoints": points}
    elif family.kind is MetricKind.COUNTER:
        metric["sum"] = {
            "aggregationTemporality": _CUMULATIVE,
            "isMonotonic": True,
            "dataPoints": points,
        }
    else:
        metric["gauge"] = {"dataPoints": points}
    return metric


def _make_number(value: float) -> _Json:
    # 64-bit integers are texts in JSON. Drives have counters of 128 bits.
    if isinstance(value, int) and value < 1 << 63:
        return {"asInt": str(value)}
    return {"asDouble": float(value)}


def _make_histogram(counts: DurationCounts) -> _Json:
    """Return a histogram with the buckets of Prometheus' native histograms.

    OTLP numbers a bucket by its lower bound, Prometheus by its upper one.
    """
    point: _Json = {"count": str(counts.total), "sum": counts.sum_s, "scale": NATIVE_SCHEMA}
    if not counts.has_buckets:
        return point
    zero, buckets = count_native(counts)
    point["zeroCount"] = str(zero)
    if buckets:
        first, last = buckets[0][0], buckets[-1][0]
        filled = dict(buckets)
        row = [str(filled.get(index, 0)) for index in range(first, last + 1)]
        point["positive"] = {"offset": first - 1, "bucketCounts": row}
    return point
