"""The format and the coding follow from the scraper's headers."""

from __future__ import annotations

import pytest

from opwatch.metrics.formats import ExpositionFormat
from opwatch.tools.exporter.negotiation import accepts_gzip, choose_exposition

_PROTO = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
# What Prometheus 2.42 sends, without and with its flag for native histograms.
_PROMETHEUS_TEXT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
_PROMETHEUS_NATIVE = (
    f"{_PROTO},application/openmetrics-text;version=1.0.0;q=0.8,"
    "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
# Prometheus 3 names an escaping scheme, and puts weights behind it.
_PROMETHEUS_3 = (
    f"{_PROTO};q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", ExpositionFormat.TEXT),
        ("*/*", ExpositionFormat.TEXT),
        ("text/html,application/xhtml+xml,*/*;q=0.8", ExpositionFormat.TEXT),
        (_PROMETHEUS_TEXT, ExpositionFormat.OPENMETRICS),
        (_PROMETHEUS_NATIVE, ExpositionFormat.PROTOBUF),
        (_PROMETHEUS_3, ExpositionFormat.PROTOBUF),
        (f"{_PROTO.replace('delimited', 'text')}", ExpositionFormat.TEXT),
        ("application/openmetrics-text;version=2.0.0", ExpositionFormat.TEXT),
        ("application/openmetrics-text;q=0,text/plain", ExpositionFormat.TEXT),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.3", ExpositionFormat.TEXT),
        ("application/openmetrics-text;q=nan,text/plain;q=0.3", ExpositionFormat.TEXT),
        ('APPLICATION/OpenMetrics-Text; Version="1.0.0"', ExpositionFormat.OPENMETRICS),
        (";;;,,,=;q", ExpositionFormat.TEXT),
        ("application/openmetrics-text;q=٣", ExpositionFormat.TEXT),
    ],
)
def test_format_with_the_highest_weight_is_chosen(accept: str, expected: ExpositionFormat) -> None:
    assert choose_exposition(accept) is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("gzip;q=0, *", False),
        ("identity", False),
    ],
)
def test_gzip_is_used_only_if_asked_for(header: str, expected: bool) -> None:
    assert accepts_gzip(header) is expected
