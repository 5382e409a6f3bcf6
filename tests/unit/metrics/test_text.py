"""Both text formats, read by Prometheus' Python parsers and by promtool."""

from __future__ import annotations

import importlib
import math
import shutil
import subprocess
from typing import Any

import pytest

from opwatch.metrics.buckets import CLASSIC_BOUNDS, accumulate_classic
from opwatch.metrics.drives import add_drive_metrics
from opwatch.metrics.family import DurationCounts, MetricSamples
from opwatch.metrics.formats import ExpositionFormat, MetricEncoder, encode
from opwatch.metrics.kernel import add_disk_metrics, add_refused_disk
from opwatch.metrics.label_text import MAX_LABEL_CHARACTERS, clean_label, shorten_label
from opwatch.metrics.table import DRIVE_INFO, FAMILIES, IO_BYTES, IO_DURATION
from opwatch.metrics.text import format_number
from tests.requirements import skip_or_fail
from tests.unit.support.metric_answers import (
    NO_LOSSES,
    draw_durations,
    make_answer,
    make_disk_sample,
    make_reading,
)
from tests.unit.support.samples import Op

TEXTS = (ExpositionFormat.TEXT, ExpositionFormat.OPENMETRICS)
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]
HOSTILE = ('a"b\\c\nd', "\\", "\\n", "x\ty\x00\x1b[31m", "\udcff\udc80", "é中", "", 'le="+Inf"} 1\n# EOF')


def parse_answer(raw: bytes, form: ExpositionFormat) -> Values:
    """Return the values by sample name and labels. Parsers fail on duplicates and on wrong lines."""
    name = "openmetrics.parser" if form is ExpositionFormat.OPENMETRICS else "parser"
    parser: Any = importlib.import_module(f"prometheus_client.{name}")
    values: Values = {}
    for family in parser.text_string_to_metric_families(raw.decode()):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in values
            values[key] = sample.value
    return values


def list_expected(samples: MetricSamples) -> Values:
    """Return the values that a server must read from an answer."""
    expected: Values = {}
    for family in FAMILIES:
        for labels, value in samples.rows.get(family.name, ()):
            named = dict(zip(family.labels, map(clean_label, labels), strict=True))
            if not isinstance(value, DurationCounts):
                expected[family.name, tuple(sorted(named.items()))] = value
                continue
            buckets = [*zip(CLASSIC_BOUNDS, accumulate_classic(value), strict=True), (math.inf, value.total)]
            for bound, count in buckets:
                le = "+Inf" if bound == math.inf else str(bound)
                expected[f"{family.name}_bucket", tuple(sorted((named | {"le": le}).items()))] = count
            expected[f"{family.name}_count", tuple(sorted(named.items()))] = value.total
            expected[f"{family.name}_sum", tuple(sorted(named.items()))] = value.sum_s
    return expected


@pytest.mark.parametrize("form", TEXTS)
def test_parsers_read_every_value(form: ExpositionFormat) -> None:
    samples = make_answer(2)
    assert parse_answer(encode(samples, form), form) == list_expected(samples)


@pytest.mark.parametrize("form", TEXTS)
def test_hostile_labels_survive(form: ExpositionFormat) -> None:
    samples = MetricSamples()
    for number, text in enumerate(HOSTILE):
        add_drive_metrics(samples, make_reading(f"d{number}", text, model=text))
        add_disk_metrics(samples, make_disk_sample(text, read=Op([5], [512])), NO_LOSSES)
        add_refused_disk(samples, f"gone{number}", text)
    values = parse_answer(encode(samples, form), form)
    assert values == list_expected(samples)
    models = {dict(labels)["model"] for name, labels in values if name == DRIVE_INFO.name}
    assert {'a"b\\c\nd', "\\", "\\n", "é中", ""} < models
    assert len(models) == len(HOSTILE)


@pytest.mark.parametrize("form", TEXTS)
def test_second_answer_has_new_values_and_forgets_old_series(form: ExpositionFormat) -> None:
    encoder = MetricEncoder()
    for disks, requests in ((3, 100), (3, 300), (1, 400), (2, 400)):
        samples = make_answer(disks, requests)
        assert parse_answer(encoder.encode(samples, form), form) == list_expected(samples)


def test_of_equal_series_the_first_is_written() -> None:
    samples = MetricSamples()
    for value in (1, 2):
        samples.add(IO_BYTES, value, "sda", "read")
        samples.add(IO_DURATION, DurationCounts((5,), (value,), 1.0), "sda", "read")
    for form in TEXTS:
        values = parse_answer(encode(samples, form), form)
        assert values[IO_BYTES.name, (("device", "sda"), ("op", "read"))] == 1
        assert values[f"{IO_DURATION.name}_count", (("device", "sda"), ("op", "read"))] == 1


def test_device_with_percent_signs_does_not_break_templates() -> None:
    samples = MetricSamples()
    add_disk_metrics(samples, make_disk_sample("%d%s%%", read=Op(draw_durations(1, 50))), NO_LOSSES)
    assert parse_answer(encode(samples, TEXTS[0]), TEXTS[0]) == list_expected(samples)


def test_histogram_without_distribution_has_one_bucket() -> None:
    samples = MetricSamples()
    lacks = ("percentiles: the source has no distribution",)
    add_disk_metrics(samples, make_disk_sample("sda", lacks, read=Op([5, 7], [512, 512])), NO_LOSSES)
    for form in TEXTS:
        values = parse_answer(encode(samples, form), form)
        read = {
            name: value
            for (name, labels), value in values.items()
            if name.startswith(IO_DURATION.name) and ("op", "read") in labels
        }
        assert read == {
            "opwatch_io_duration_seconds_bucket": 2,
            "opwatch_io_duration_seconds_count": 2,
            "opwatch_io_duration_seconds_sum": 12e-9,
        }


def test_empty_answer_is_valid() -> None:
    assert encode(MetricSamples(), ExpositionFormat.TEXT) == b""
    assert encode(MetricSamples(), ExpositionFormat.OPENMETRICS) == b"# EOF\n"


def test_promtool_accepts_the_answer() -> None:
    promtool = shutil.which("promtool")
    if not promtool:
        skip_or_fail("promtool", "promtool is not installed (Debian package prometheus)")
    samples = make_answer(2)
    for number, text in enumerate(HOSTILE):
        add_refused_disk(samples, f"gone{number}", text)
    raw = encode(samples, ExpositionFormat.TEXT)
    run = subprocess.run([promtool, "check", "metrics"], input=raw, capture_output=True, check=False)
    assert (run.returncode, run.stdout + run.stderr) == (0, b"")


def test_numbers_are_written_exactly() -> None:
    numbers = (0, 1.0, 2**53, 123456789012345678, 1.5, 1e300, -0.25, 4.095e-06)
    assert [float(format_number(number)) for number in numbers] == [float(number) for number in numbers]
    assert [format_number(number) for number in (1.0, math.inf, -math.inf, math.nan)] == [
        "1",
        "+Inf",
        "-Inf",
        "NaN",
    ]


def test_long_labels_are_shortened_to_different_texts() -> None:
    names = ["/kubepods" + "/x" * 2048 + f"/{number}" + "/y" * 100 for number in range(50)]
    short = {shorten_label(name) for name in names}
    assert len(short) == len(names)
    assert {len(name) for name in short} == {MAX_LABEL_CHARACTERS}
    assert shorten_label("a" * MAX_LABEL_CHARACTERS) == "a" * MAX_LABEL_CHARACTERS
