"""An HTTP/1.1 server in one thread, with limits on everything a client may take."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from opwatch.tools.exporter.event_loop import READ, WRITE, EventLoop
from opwatch.tools.exporter.http_request import BadRequest, HttpRequest, RequestReader
from opwatch.tools.exporter.http_response import HttpResponse, encode_response, make_error
from opwatch.tools.exporter.negotiation import accepts_gzip

if TYPE_CHECKING:
    from ssl import SSLContext

MAX_CONNECTIONS = 64
# Longest times for the head of a request, for any progress of an answer, and between requests. Servers
# scrape each minute or more often, and keep their connections.
HEAD_S, WRITE_S, IDLE_S = 10.0, 20.0, 150.0
_RECEIVED_BYTES = 16384
_MAX_ACCEPTS = 16
# Reads of unwanted bytes before a connection is closed.
_MAX_DROPS = 8
# The first byte of a TLS record for a handshake.
_TLS_HANDSHAKE = 0x16
# Time without new connections after the process ran out of descriptors.
_PAUSE_S = 1.0

Answer = Callable[[HttpResponse], None]


class Handler(Protocol):
    """Makes answers. It calls `answer` once, at once or later from the loop."""

    def handle(self, request: HttpRequest, peer: str, answer: Answer) -> None: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """Return the headers of every answer."""

    def check_connection(self, connection: socket.socket) -> str | None:
        """Return the reason to refuse a client after its TLS handshake, or None."""


class _Connection:
    """A client's connection. `since` is the time of the last progress, by the monotonic clock."""

    __slots__ = (
        *("closes", "ended", "handshakes", "is_busy", "is_watched", "number", "output", "peer", "reader"),
        *("since", "socket"),
    )

    def __init__(self, connection: socket.socket, peer: str) -> None:
        self.socket, self.number, self.peer = connection, connection.fileno(), peer
        self.reader = RequestReader()
        self.output = memoryview(b"")
        self.since = time.monotonic()
        # The answer is not known yet. / The connection ends with the output. / The client sends no more.
        self.is_busy = self.closes = self.ended = self.is_watched = False
        # True until the first byte of a TLS connection was seen, then until the handshake is complete.
        self.handshakes = False


class HttpServer:
    """Serves the listeners from construction to close(). All calls are made in the loop's thread."""

    def __init__(
        self,
        loop: EventLoop,
        listeners: Sequence[socket.socket],
        handler: Handler,
        tls: SSLContext | None = None,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._loop, self._listeners, self._handler = loop, list(listeners), handler
        # Replaced when certificates are read again. Connections keep theirs.
        self.tls = tls
        self._most = max_connections
        # In order of their beginning.
        self._connections: dict[int, _Connection] = {}
        self._paused_until: float | None = None
        for listener in self._listeners:
            listener.setblocking(False)
            self._watch_listener(listener)
        loop.call_every(self._end_late)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def _watch_listener(self, listener: socket.socket) -> None:
        self._loop.watch(listener, READ, lambda _: self._accept(listener))

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_MAX_ACCEPTS):
            try:
                accepted, address = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._pause()
                    return
                continue  # The client is gone already.
            if len(self._connections) >= self._most and not self._evict():
                accepted.close()
                continue
            self._add_connection(accepted, str(address[0]) if address else "local")

    def _pause(self) -> None:
        """Accept nothing for a while, because accepting would fail at once again."""
        self._paused_until = time.monotonic() + _PAUSE_S
        for listener in self._listeners:
            self._loop.unwatch(listener)

    def _evict(self) -> bool:
        """End the connection that has been waiting for its client for the longest time, if there is one.

        Clients that read an answer come last, because a scrape does. They do not stay either: clients that
        read only a little at a time could otherwise keep all others out."""
        waiting = [one for one in self._connections.values() if not one.is_busy]
        if waiting:
            self._close(min(waiting, key=lambda one: (bool(one.output), one.since)))
        return bool(waiting)

    def _add_connection(self, accepted: socket.socket, peer: str) -> None:
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one = _Connection(accepted, peer)
        one.handshakes = self.tls is not None
        self._connections[one.number] = one
        self._watch(one, READ)

    def _watch(self, one: _Connection, events: int) -> None:
        """Wait for these events of a connection, and for no others."""
        if one.is_watched:
            self._loop.change_events(one.number, events)
        else:
            self._loop.watch(one.number, events, lambda _: self._serve(one))
            one.is_watched = True

    def _unwatch(self, one: _Connection) -> None:
        if one.is_watched:
            self._loop.unwatch(one.number)
            one.is_watched = False

    def _serve(self, one: _Connection) -> None:
        """Go on with a connection that is ready. No failure of one client reaches another."""
        try:
            if one.handshakes and not self._shake_hands(one):
                return
            if one.output:
                self._send(one)
            elif not one.is_busy:
                self._receive(one)
        except (ConnectionError, TimeoutError):
            self._close(one)
        except OSError as error:
            # SSLError is an OSError too. Its first argument is not an errno.
            if not self._wants_more(one, error):
                self._close(one)

    def _wants_more(self, one: _Connection, error: OSError) -> bool:
        """Wait for what the error asks for. Return False if it is a failure."""
        if isinstance(error, BlockingIOError):
            return True
        if self.tls is None:
            return False
        from ssl import SSLWantReadError, SSLWantWriteError

        if isinstance(error, SSLWantReadError | SSLWantWriteError):
            self._watch(one, READ if isinstance(error, SSLWantReadError) else WRITE)
            return True
        return False

    def _shake_hands(self, one: _Connection) -> bool:
        """Return True once a TLS connection can be used."""
        from ssl import SSLSocket

        if not isinstance(one.socket, SSLSocket):
            first = one.socket.recv(1, socket.MSG_PEEK)
            if not first:
                self._close(one)
                return False
            if first[0] != _TLS_HANDSHAKE or self.tls is None:
                one.handshakes = False
                refused = make_error(400, "this port speaks HTTPS; ask it with https://")
                self._answer_bad(one, refused)
                return False
            one.socket = self.tls.wrap_socket(one.socket, server_side=True, do_handshake_on_connect=False)
        one.socket.do_handshake()
        one.handshakes = False
        one.since = time.monotonic()
        self._watch(one, READ)
        if refused_why := self._handler.check_connection(one.socket):
            self._answer_bad(one, make_error(403, refused_why))
            return False
        return True

    def _receive(self, one: _Connection) -> None:
        while not one.reader.is_full:
            data = one.socket.recv(_RECEIVED_BYTES)
            if not data:
                one.ended = True
                break
            if not one.reader.has_begun:
                one.since = time.monotonic()
            one.reader.add_bytes(data)
            if not _has_decrypted(one.socket):
                break
        self._take_request(one)

    def _take_request(self, one: _Connection) -> None:
        request = one.reader.take_request()
        if request is None:
            if one.ended:
                self._close(one)
            elif _has_decrypted(one.socket):
                self._loop.call_soon(lambda: self._take_pending(one))
            return
        if isinstance(request, BadRequest):
            self._answer_bad(one, make_error(request.status, request.reason))
            return
        one.is_busy = True
        # Nothing is read while an answer is made, or the loop would spin on bytes that wait.
        self._unwatch(one)
        self._handler.handle(request, one.peer, lambda response: self._answer(one, request, response))

    def _answer(self, one: _Connection, request: HttpRequest, response: HttpResponse) -> None:
        if self._connections.get(one.number) is not one:
            return  # The server was closed
        one.is_busy, one.closes = False, not request.keeps_alive
        data = encode_response(
            response,
            self._handler.headers,
            has_body=request.method != "HEAD",
            keeps_alive=request.keeps_alive,
            gzip=accepts_gzip(request.headers.get("accept-encoding", "")),
        )
        self._start_output(one, data)

    def _answer_bad(self, one: _Connection, response: HttpResponse) -> None:
        one.closes = True
        extra = self._handler.headers
        self._start_output(
            one, encode_response(response, extra, has_body=True, keeps_alive=False, gzip=False)
        )

    def _start_output(self, one: _Connection, data: bytes) -> None:
        one.output, one.since = memoryview(data), time.monotonic()
        self._watch(one, WRITE)
        self._serve(one)

    def _send(self, one: _Connection) -> None:
        sent = one.socket.send(one.output)
        one.output, one.since = one.output[sent:], time.monotonic()
        if one.output:
            self._watch(one, WRITE)
            return
        one.output = memoryview(b"")
        if one.closes or one.ended:
            _say_goodbye(one.socket)
            self._close(one)
            return
        self._watch(one, READ)
        if one.reader.has_begun or _has_decrypted(one.socket):
            # The client sent its next request without waiting.
            self._loop.call_soon(lambda: self._take_pending(one))

    def _take_pending(self, one: _Connection) -> None:
        is_open = self._connections.get(one.number) is one
        if not is_open or one.is_busy or one.output:
            return
        if _has_decrypted(one.socket):
            self._serve(one)
        else:
            self._take_request(one)

    def _end_late(self) -> float:
        """End connections whose clients are late. Return the seconds until the next check."""
        now = time.monotonic()
        if self._paused_until and now >= self._paused_until:
            self._paused_until = None
            for listener in self._listeners:
                self._watch_listener(listener)
        for one in list(self._connections.values()):
            passed = now - one.since
            if one.is_busy:
                continue
            if one.output or one.handshakes:
                if passed > (WRITE_S if one.output else HEAD_S):
                    self._close(one)
            elif one.reader.has_begun:
                if passed > HEAD_S:
                    late = f"the request was not complete within {HEAD_S:g} s"
                    self._answer_bad(one, make_error(408, late))
            elif passed > IDLE_S:
                self._close(one)
        return 1.0 if self._connections or self._paused_until else 5.0

    def _close(self, one: _Connection) -> None:
        if self._connections.get(one.number) is one:
            del self._connections[one.number]
            self._unwatch(one)
            one.socket.close()

    def close(self) -> None:
        """End every connection, and stop listening."""
        for one in list(self._connections.values()):
            self._close(one)
        for listener in self._listeners:
            if not self._paused_until:
                self._loop.unwatch(listener)
            listener.close()
        self._listeners = []


def _has_decrypted(connection: socket.socket) -> bool:
    """Return True if TLS holds bytes that the kernel has already handed over."""
    pending = getattr(connection, "pending", None)
    return pending is not None and pending() > 0


def _say_goodbye(connection: socket.socket) -> None:
    """End the output, and drop what the client sent that nobody reads: closing a connection with unread bytes
    would reset it, and the client might lose the answer."""
    with suppress(OSError):
        if unwrap := getattr(connection, "unwrap", None):
            unwrap()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        for _ in range(_MAX_DROPS):
            if not socket.socket.recv(connection, _RECEIVED_BYTES):
                return
