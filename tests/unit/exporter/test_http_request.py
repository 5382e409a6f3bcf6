"""Requests are taken out of a stream of bytes, or refused with a status."""

from __future__ import annotations

import pytest

from opwatch.tools.exporter.http_request import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_TARGET_BYTES,
    BadRequest,
    HttpRequest,
    RequestReader,
)


def read_one(data: bytes) -> HttpRequest | BadRequest | None:
    reader = RequestReader()
    reader.add_bytes(data)
    return reader.take_request()


def read_request(data: bytes) -> HttpRequest:
    request = read_one(data)
    assert isinstance(request, HttpRequest), request
    return request


def read_status(data: bytes) -> int:
    refusal = read_one(data)
    assert isinstance(refusal, BadRequest), refusal
    return refusal.status


def test_request_has_method_path_and_headers() -> None:
    request = read_request(
        b"GET /metrics?x HTTP/1.1\r\nHost: a\r\nACCEPT:\t text/plain \r\naccept: b\r\n\r\n"
    )
    assert (request.method, request.path) == ("GET", "/metrics")
    assert request.headers == {"host": "a", "accept": "text/plain, b"}
    assert request.keeps_alive


@pytest.mark.parametrize(
    ("head", "keeps"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", False),
    ],
)
def test_connection_is_kept_only_if_its_next_request_can_be_found(head: bytes, keeps: bool) -> None:
    assert read_request(head).keeps_alive is keeps


def test_requests_of_one_stream_are_taken_one_by_one_however_it_is_cut() -> None:
    stream = (
        b"\r\nGET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET http://b/2 HTTP/1.1\nHost: a\n\nHEAD / HTTP/1.0\r\n\r\n"
    )
    for size in (1, 2, 7, len(stream)):
        reader, requests = RequestReader(), []
        for begin in range(0, len(stream), size):
            reader.add_bytes(stream[begin : begin + size])
            while request := reader.take_request():
                assert isinstance(request, HttpRequest)
                requests.append((request.method, request.path))
        assert requests == [("GET", "/1"), ("GET", "/2"), ("HEAD", "/")]
        assert not reader.has_begun


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"\r\n" * 9 + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\n", 400),
        (b"GET /" + b"a" * MAX_TARGET_BYTES, 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * MAX_HEAD_BYTES, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * MAX_HEADERS + b"\r\n", 431),
    ],
)
def test_bad_request_is_refused(data: bytes, status: int) -> None:
    assert read_status(data) == status


def test_incomplete_request_is_waited_for() -> None:
    assert read_one(b"GET / HTTP/1.1\r\nHost: a\r\n") is None
    assert read_one(b"") is None
