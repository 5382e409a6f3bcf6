"""Protobuf answers, read field by field."""

from __future__ import annotations

import math

from opwatch.metrics.buckets import CLASSIC_BOUNDS, accumulate_classic, count_native
from opwatch.metrics.drives import add_drive_metrics
from opwatch.metrics.family import DurationCounts, MetricSamples
from opwatch.metrics.formats import ExpositionFormat, MetricEncoder, encode
from opwatch.metrics.kernel import add_disk_metrics
from opwatch.metrics.label_text import clean_label
from opwatch.metrics.table import DRIVE_INFO, FAMILIES, IO_DURATION
from tests.unit.metrics.test_text import HOSTILE
from tests.unit.support.metric_answers import (
    NO_LOSSES,
    Message,
    make_answer,
    make_disk_sample,
    make_reading,
    read_families,
)
from tests.unit.support.samples import Op

PROTOBUF = ExpositionFormat.PROTOBUF
TYPES = {"counter": 0, "gauge": 1, "histogram": 4}


def check_histogram(histogram: Message, value: DurationCounts, *, has_classic: bool = True) -> None:
    zero, native = count_native(value)
    assert (histogram.get("sample_count"), histogram.get("sample_sum")) == (value.total, value.sum_s)
    assert histogram.get("schema") == 3
    assert histogram.get("zero_count") == zero
    assert histogram.list_native() == dict(native)
    assert sum(histogram.list_native().values()) + zero == value.total
    classic = [
        (bucket.get("upper_bound"), bucket.get("cumulative_count")) for bucket in histogram.list("bucket")
    ]
    expected = list(zip(CLASSIC_BOUNDS, accumulate_classic(value), strict=True))
    assert classic == (expected if has_classic else [])


def check_answer(raw: bytes, samples: MetricSamples, *, has_classic: bool = True) -> None:
    families = read_families(raw)
    assert list(families) == [family.name for family in FAMILIES if samples.rows.get(family.name)]
    for family in FAMILIES:
        if not samples.rows.get(family.name):
            continue
        message = families[family.name]
        assert (message.get("type"), message.get("help")) == (TYPES[family.kind], family.help)
        assert message.get("unit") == (family.unit or 0)
        for metric, (labels, value) in zip(message.list("metric"), samples.rows[family.name], strict=True):
            assert metric.labels == dict(zip(family.labels, map(clean_label, labels), strict=True))
            content = metric.get(family.kind.value)
            if isinstance(value, DurationCounts):
                check_histogram(content, value, has_classic=has_classic)
            else:
                assert content.get("value") == value


def test_every_value_is_encoded() -> None:
    samples = make_answer(2)
    check_answer(encode(samples, PROTOBUF), samples)


def test_second_answer_has_new_values_and_forgets_old_series() -> None:
    encoder = MetricEncoder()
    for disks, requests, has_classic in ((3, 60, True), (3, 120, True), (1, 120, True), (2, 120, False)):
        samples = make_answer(disks, requests)
        raw = encoder.encode(samples, PROTOBUF, with_classic_buckets=has_classic)
        check_answer(raw, samples, has_classic=has_classic)


def test_large_counts_and_gaps_between_buckets_are_encoded() -> None:
    samples = MetricSamples()
    slots, running, total = [], [], 0
    for place, count in enumerate((1, 127, 128, 16383, 16384, 1 << 21, 1 << 35, 1 << 50)):
        total += count
        slots.append(1 + place * 3 if place < 4 else place * 120)
        running.append(total)
    samples.add(IO_DURATION, DurationCounts(slots, running, 1e9), "sda", "read")
    samples.add(IO_DURATION, DurationCounts((0,), (5,), 0.0), "sda", "write")
    samples.add(IO_DURATION, DurationCounts((), (), 0.0), "sda", "flush")
    check_answer(encode(samples, PROTOBUF), samples)


def test_empty_histogram_is_recognized_as_native() -> None:
    samples = MetricSamples()
    samples.add(IO_DURATION, DurationCounts((), (), 0.0), "sda", "read")
    [metric] = read_families(encode(samples, PROTOBUF))[IO_DURATION.name].list("metric")
    assert 0 < metric.get("histogram").get("zero_threshold") < 1e-9
    assert math.isclose(metric.get("histogram").get("zero_threshold"), 2.0**-128)


def test_histogram_without_distribution_has_number_and_sum_alone() -> None:
    samples = MetricSamples()
    lacks = ("percentiles: the source has no distribution",)
    add_disk_metrics(samples, make_disk_sample("sda", lacks, read=Op([5, 7], [512, 512])), NO_LOSSES)
    metric = read_families(encode(samples, PROTOBUF))[IO_DURATION.name].list("metric")[0]
    assert set(metric.get("histogram").fields) == {"sample_count", "sample_sum"}


def test_hostile_labels_are_valid_utf8() -> None:
    samples = MetricSamples()
    for number, text in enumerate(HOSTILE):
        add_drive_metrics(samples, make_reading(f"d{number}", text, model=text))
    families = read_families(encode(samples, PROTOBUF))
    models = {metric.labels["model"] for metric in families[DRIVE_INFO.name].list("metric")}
    assert {'a"b\\c\nd', "é中", ""} < models
    assert len(models) == len(HOSTILE)
    check_answer(encode(samples, PROTOBUF), samples)
