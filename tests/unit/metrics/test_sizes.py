"""Size of an answer with eight disks, and series per disk."""

from __future__ import annotations

import gzip
import tracemalloc

from opwatch.metrics.family import DurationCounts, MetricSamples
from opwatch.metrics.formats import ExpositionFormat, MetricEncoder, encode
from opwatch.metrics.series_limit import count_series
from opwatch.metrics.table import IO_DURATION, OWNER_BYTES
from tests.unit.support.metric_answers import make_answer

# The exporter's own series; the limit adds another.
_OWN_SERIES = 6


def test_a_disk_has_at_most_48_native_and_217_classic_series() -> None:
    samples = make_answer(8)
    assert count_series(samples, with_classic_buckets=False) - _OWN_SERIES <= 8 * 48
    assert count_series(samples) - _OWN_SERIES <= 8 * 217


def test_compressed_answers_of_eight_busy_disks_are_small() -> None:
    samples = make_answer(8)
    sizes = {form: len(gzip.compress(encode(samples, form), 6)) for form in ExpositionFormat}
    assert sizes[ExpositionFormat.PROTOBUF] <= 12_000
    assert sizes[ExpositionFormat.TEXT] <= 10_000
    assert sizes[ExpositionFormat.OPENMETRICS] <= 10_000


def test_encoder_does_not_grow_with_series_that_come_and_go() -> None:
    encoder, forms = MetricEncoder(), list(ExpositionFormat)

    def encode_answers(begin: int, end: int) -> None:
        for number in range(begin, end):
            samples = MetricSamples()
            for place in range(10):
                samples.add(OWNER_BYTES, number, "sda", "read", f"/job{number}/{place}", "", "")
                samples.add(IO_DURATION, DurationCounts((5,), (number,), 1.0), f"sd{number}", f"{place}")
            for form in forms:
                encoder.encode(samples, form)

    encode_answers(0, 50)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        encode_answers(50, 550)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # An answer's own parts are about 200 KB.
    assert after - before < 400_000
