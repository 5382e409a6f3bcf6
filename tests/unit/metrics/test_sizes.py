"""Size of an answer with eight disks, and series per disk."""

from __future__ import annotations

import gzip

from opwatch.metrics.formats import ExpositionFormat, encode
from opwatch.metrics.series_limit import count_series
from tests.unit.support.metric_answers import make_answer

# The exporter's own series; the limit adds another.
_OWN_SERIES = 6


def test_a_disk_has_at_most_48_native_and_217_classic_series() -> None:
    samples = make_answer(8)
    assert count_series(samples, with_classic_buckets=False) - _OWN_SERIES <= 8 * 48
    assert count_series(samples) - _OWN_SERIES <= 8 * 217


def test_compressed_answers_of_eight_busy_disks_are_small() -> None:
    samples = make_answer(8)
    sizes = {form: len(gzip.compress(encode(samples, form))) for form in ExpositionFormat}
    assert sizes[ExpositionFormat.PROTOBUF] <= 12_000
    assert sizes[ExpositionFormat.TEXT] <= 10_000
    assert sizes[ExpositionFormat.OPENMETRICS] <= 10_000
