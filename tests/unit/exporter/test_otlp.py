"""Pushes reach an OTLP receiver, also one that fails for a while."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from opwatch.errors import UsageError
from opwatch.metrics.buckets import count_durations
from opwatch.metrics.family import MetricSamples
from opwatch.metrics.table import IO_BYTES, IO_DURATION, TEMPERATURE
from opwatch.tools.exporter.otlp_document import encode_document
from opwatch.tools.exporter.otlp_push import (
    MAX_BUFFERED,
    OtlpPusher,
    OtlpTarget,
    parse_otlp_headers,
    parse_otlp_url,
)
from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Histogram


class _Receiver(ThreadingHTTPServer):
    """Answers with the next of these statuses, then with 200. Keeps the documents that it accepted."""

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses, self.documents, self.asked = statuses, list[bytes](), 0
        self.headers_seen: dict[str, str] = {}


class _Handler(BaseHTTPRequestHandler):
    server: _Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        self.server.headers_seen = dict(self.headers)
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status == 200 and self.path == "/v1/metrics":
            self.server.documents.append(zlib.decompress(body, 31))
        self.send_response(status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def receive(*statuses: int) -> Iterator[tuple[_Receiver, OtlpTarget]]:
    server = _Receiver(list(statuses))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server, parse_otlp_url(f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_documents_arrive_in_order_with_headers() -> None:
    with receive() as (server, target):
        pusher = OtlpPusher(target, {"Authorization": "Bearer x"}, print)
        for number in range(3):
            pusher.push(b"%d" % number)
        wait_for(lambda: len(server.documents) == 3)
        assert server.documents == [b"0", b"1", b"2"]
        assert server.headers_seen["Authorization"] == "Bearer x"
        assert server.headers_seen["Content-Type"] == "application/json"
        pusher.close(1)


def test_push_is_repeated_until_accepted_and_reported_once() -> None:
    messages: list[str] = []
    with receive(503, 503, 429, 502) as (server, target):
        pusher = OtlpPusher(target, {}, messages.append, first_pause_s=0.01)
        pusher.push(b"document")
        wait_for(lambda: len(server.documents) == 1)
        assert server.asked == 5
        wait_for(lambda: "accepts pushes again" in messages[-1])
        # A message per kind of trouble, and one for its end.
        assert len(messages) == 4
        pusher.close()


def test_push_that_is_refused_for_good_is_dropped() -> None:
    with receive(400) as (server, target):
        pusher = OtlpPusher(target, {}, print, first_pause_s=0.01)
        pusher.push(b"bad")
        pusher.push(b"good")
        wait_for(lambda: server.documents == [b"good"])
        assert pusher.dropped == 1
        pusher.close()


def test_buffer_is_bounded_while_nobody_listens() -> None:
    pusher = OtlpPusher(OtlpTarget(False, "127.0.0.1", 9, "/"), {}, lambda _: None, first_pause_s=30)
    for number in range(MAX_BUFFERED * 3):
        pusher.push(b"%d" % number)
    assert pusher.dropped >= MAX_BUFFERED * 2 - 1
    begin = time.monotonic()
    pusher.close(0.1)
    assert time.monotonic() - begin < 2


def test_document_has_every_kind_of_metric() -> None:
    samples = MetricSamples()
    counts = [0] * LATENCY.slots
    counts[0], counts[300], counts[301], counts[330] = 1, 2, 3, 4
    samples.add(IO_DURATION, count_durations(Histogram(LATENCY, counts), 5 * 10**9), "sda", "read")
    samples.add(IO_BYTES, 2**60 + 1, "sda", "read")
    samples.add(IO_BYTES, 2**80, "sda", "write")
    samples.add(TEMPERATURE, 30, "sda", "S\udcff1")
    document = json.loads(encode_document(samples, {"host.name": "a"}, "1.0", 1, 2))
    [resource] = document["resourceMetrics"]
    assert resource["resource"]["attributes"] == [{"key": "host.name", "value": {"stringValue": "a"}}]
    metrics = {one["name"]: one for one in resource["scopeMetrics"][0]["metrics"]}
    counter = metrics["opwatch_io_bytes"]["sum"]
    assert (counter["isMonotonic"], counter["aggregationTemporality"]) == (True, 2)
    assert counter["dataPoints"][0]["asInt"] == str(2**60 + 1)
    # No integer of OTLP has more than 63 bits.
    assert counter["dataPoints"][1]["asDouble"] == 2**80
    assert metrics["opwatch_io_bytes"]["unit"] == "By"
    assert metrics["opwatch_temperature_celsius"]["gauge"]["dataPoints"][0]["asInt"] == "30"
    [point] = metrics["opwatch_io_duration_seconds"]["exponentialHistogram"]["dataPoints"]
    assert (point["count"], point["sum"], point["zeroCount"], point["scale"]) == ("10", 5.0, "1", 3)
    assert sum(map(int, point["positive"]["bucketCounts"])) == 9
    # Bucket i of OTLP is (2^(i/8), 2^((i+1)/8)].
    low, high = LATENCY.find_edges(300)
    first = point["positive"]["offset"]
    assert 2 ** (first / 8) <= (low + high) / 2e9 <= 2 ** ((first + 1) / 8)


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost:4318", "ftp://a", "http://", "http://u:p@a", "http://a:99999"),
        *("http://a..b/", "http://a/é", "http://a/b c"),
    ],
)
def test_address_that_is_not_a_receiver_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--otlp"):
        parse_otlp_url(text)


def test_addresses_and_headers_are_read() -> None:
    assert parse_otlp_url("https://a/x?y=1") == OtlpTarget(True, "a", 443, "/x?y=1")
    assert parse_otlp_url("http://[::1]:4318/") == OtlpTarget(False, "::1", 4318, "/v1/metrics")
    assert parse_otlp_headers("a=b%20c, D=e=f") == {"a": "b c", "D": "e=f"}
    for text in ("a", "a=b%0d%0aX: y", "a b=c", "é=c"):
        with pytest.raises(UsageError):
            parse_otlp_headers(text)
