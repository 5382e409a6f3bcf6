"""The server answers each client, whatever others do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import zlib
from collections.abc import Iterator

import pytest

from opwatch.tools.exporter import http_server
from opwatch.tools.exporter.event_loop import EventLoop
from opwatch.tools.exporter.http_request import HttpRequest
from opwatch.tools.exporter.http_response import HttpResponse
from opwatch.tools.exporter.http_server import Answer, HttpServer

_BODY = b"0123456789" * 100


class EchoSite:
    """Answers /slow from a thread, /big with a megabyte, and every other path with _BODY."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self.headers = {"X-Extra": "yes"}

    def handle(self, request: HttpRequest, peer: str, answer: Answer) -> None:
        body = _BODY * 2000 if request.path == "/big" else _BODY
        response = HttpResponse(200, body, may_compress=True)
        if request.path != "/slow":
            answer(response)
            return

        def answer_late() -> None:
            time.sleep(0.3)
            self._loop.call_soon(lambda: answer(response))

        threading.Thread(target=answer_late).start()

    def check_connection(self, connection: socket.socket) -> str | None:
        return None


@contextlib.contextmanager
def serve(most: int = 8) -> Iterator[tuple[HttpServer, tuple[str, int]]]:
    loop = EventLoop()
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = HttpServer(loop, [listener], EchoSite(loop), max_connections=most)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield server, address
    finally:
        loop.call_soon(loop.stop)
        thread.join(10)
        server.close()
        loop.close()


def read_answer(client: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(1)
        assert more, f"the connection ended after {data!r}"
        data += more
    first, *lines = data.decode().strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = b""
    while len(body) < int(headers["Content-Length"]):
        more = client.recv(int(headers["Content-Length"]) - len(body))
        assert more, "the body is short"
        body += more
    return int(first.split()[1]), headers, body


def ask(client: socket.socket, path: str = "/", *lines: str) -> tuple[int, dict[str, str], bytes]:
    head = "\r\n".join((f"GET {path} HTTP/1.1", "Host: a", *lines, "", ""))
    client.sendall(head.encode())
    return read_answer(client)


def test_connection_is_kept_for_more_requests() -> None:
    with serve() as (server, address), socket.create_connection(address, 10) as client:
        for _ in range(3):
            status, headers, body = ask(client)
            assert (status, body, headers["X-Extra"]) == (200, _BODY, "yes")
        assert server.connection_count == 1
        assert ask(client, "/", "Connection: close")[1]["Connection"] == "close"
        assert client.recv(1) == b""


def test_requests_sent_at_once_are_answered_in_order() -> None:
    with serve() as (_, address), socket.create_connection(address, 10) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\nGET /big HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        sizes = [len(read_answer(client)[2]) for _ in range(4)]
        assert sizes == [len(_BODY), len(_BODY) * 2000] * 2


def test_head_has_the_length_without_the_body() -> None:
    with serve() as (_, address), socket.create_connection(address, 10) as client:
        client.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
        data = b"".join(iter(lambda: client.recv(65536), b""))
        assert f"Content-Length: {len(_BODY)}\r\n".encode() in data
        assert data.endswith(b"\r\n\r\n")


def test_gzip_is_used_if_asked_for() -> None:
    with serve() as (_, address), socket.create_connection(address, 10) as client:
        _, headers, body = ask(client, "/", "Accept-Encoding: gzip")
        assert headers["Content-Encoding"] == "gzip"
        assert len(body) < len(_BODY)
        assert zlib.decompress(body, 31) == _BODY
        assert "Content-Encoding" not in ask(client)[1]


def test_slow_answer_does_not_delay_another_client() -> None:
    with serve() as (_, address), socket.create_connection(address, 10) as slow:
        slow.sendall(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        with socket.create_connection(address, 10) as client:
            begin = time.monotonic()
            assert ask(client)[0] == 200
            assert time.monotonic() - begin < 0.25
        assert read_answer(slow)[0] == 200


def test_client_that_does_not_read_does_not_delay_another() -> None:
    with serve() as (_, address), socket.create_connection(address, 10) as lazy:
        lazy.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        with socket.create_connection(address, 10) as client:
            assert ask(client)[0] == 200


def test_bad_request_is_answered_and_ends_the_connection() -> None:
    with serve() as (_, address), socket.create_connection(address, 10) as client:
        client.sendall(b"rubbish\r\n\r\n")
        assert read_answer(client)[0] == 400
        assert client.recv(1) == b""


def test_late_request_is_answered_with_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "HEAD_S", 0.2)
    with serve() as (_, address), socket.create_connection(address, 20) as client:
        client.sendall(b"GET / HT")
        assert read_answer(client)[0] == 408
        assert client.recv(1) == b""


def test_idle_connection_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_S", 0.2)
    with serve() as (_, address), socket.create_connection(address, 20) as client:
        assert ask(client)[0] == 200
        assert client.recv(1) == b""


def test_new_client_replaces_the_one_that_waits_longest() -> None:
    with serve(most=3) as (server, address), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(3)]
        for client in silent:
            client.sendall(b"GET /")
            time.sleep(0.02)
        for _ in range(5):
            with socket.create_connection(address, 10) as client:
                assert ask(client)[0] == 200
        assert server.connection_count <= 3
        assert silent[0].recv(1) == b""


def test_clients_that_do_not_read_their_answers_keep_no_others_out() -> None:
    with serve(most=4) as (server, address), contextlib.ExitStack() as stack:
        for _ in range(4):
            lazy = stack.enter_context(socket.create_connection(address, 10))
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            lazy.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
            lazy.recv(1)
        for _ in range(3):
            with socket.create_connection(address, 10) as client:
                assert ask(client)[0] == 200
        assert server.connection_count <= 4


def test_clients_that_vanish_leave_nothing_behind() -> None:
    with serve() as (server, address):
        for data in (
            b"",
            b"GET",
            b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n",
        ):
            client = socket.create_connection(address, 10)
            client.sendall(data)
            # A reset instead of a normal end.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        deadline = time.monotonic() + 10
        while server.connection_count and time.monotonic() < deadline:
            time.sleep(0.02)
        assert server.connection_count == 0
