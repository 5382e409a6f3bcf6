"""The benchmark's readings of a process and of an answer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from opwatch.metrics.formats import ExpositionFormat
from tests.bench.exporter_bench import require_fresh
from tests.bench.metered_server import Answer, count_series, read_cpu_s, read_memory

_ANSWER = """# TYPE opwatch_io_duration_seconds histogram
opwatch_io_duration_seconds_bucket{device="loop1",op="read",le="1"} 2
opwatch_io_duration_seconds_bucket{device="loop1",op="read",le="+Inf"} 3
opwatch_io_duration_seconds_sum{device="loop1",op="read"} 1.5
opwatch_io_duration_seconds_count{device="loop1",op="read"} 3
# TYPE opwatch_io_bytes_total counter
opwatch_io_bytes_total{device="loop1",op="read"} 4096
opwatch_io_bytes_total{device="loop1",op="write"} 0
opwatch_io_bytes_total{device="loop2",op="read"} 0
opwatch_io_bytes_total{device="loop11",op="read"} 0
opwatch_exporter_cpu_seconds_total 1
"""


def test_series_of_a_device_are_counted() -> None:
    assert count_series(_ANSWER, ["loop1", "loop2"]) == (3, 6)
    assert count_series(_ANSWER, ["loop2"]) == (1, 1)


def test_cpu_time_is_that_of_another_process_with_its_threads() -> None:
    burn = (
        "import threading, time; t = threading.Thread(target=lambda: [sum(range(10**5)) for _ in range(200)])"
    )
    program = f"{burn}; t.start(); t.join(); print(time.process_time(), flush=True); input()"
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        own = float(process.stdout.readline())
        read = read_cpu_s(process.pid)
        process.communicate("\n")
    assert own <= read < own + 0.05
    assert own > 0.01


def test_memory_is_summed_over_processes() -> None:
    one = read_memory(os.getpid())
    assert 1 << 20 < one.pss <= one.rss
    both = read_memory(os.getpid(), os.getpid())
    assert both.rss == pytest.approx(2 * one.rss, rel=0.1)


@pytest.mark.parametrize(("age", "is_fresh"), [("0.0", True), ("0.9", False)])
def test_repeated_reading_is_not_counted(age: str, is_fresh: bool) -> None:
    body = f"a 1\nopwatch_exporter_sample_age_seconds {age}\n".encode()
    if is_fresh:
        require_fresh(Answer(body, body), ExpositionFormat.TEXT)
    else:
        with pytest.raises(RuntimeError, match="not fresh"):
            require_fresh(Answer(body, body), ExpositionFormat.TEXT)
