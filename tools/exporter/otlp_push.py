"""Pushes documents to an OTLP receiver: a bounded buffer, and retries with growing pauses."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from opwatch.errors import UsageError
from opwatch.tools.exporter.http_response import compress
from opwatch.tools.exporter.threads import start_thread

if TYPE_CHECKING:
    from http.client import HTTPConnection

MAX_BUFFERED, MAX_BUFFERED_BYTES = 120, 4 << 20
_FIRST_PAUSE_S, _LAST_PAUSE_S, _MAX_RETRY_AFTER_S = 1.0, 60.0, 300.0
_TIMEOUT_S = 10.0
# Answers after which the same document may be accepted later.
_RETRIED = (429, 502, 503, 504)
_DEFAULT_PATH = "/v1/metrics"
_MAX_ANSWER_BYTES = 4096
_IN_PATH = re.compile(r"[\x21-\x7e]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, slots=True)
class OtlpTarget:
    """The receiver of a URL."""

    is_tls: bool
    host: str
    port: int
    path: str


def parse_otlp_url(text: str) -> OtlpTarget:
    """Return the receiver of http://HOST[:PORT][/PATH] or https://... Without a path it is /v1/metrics."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--otlp {text!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--otlp {text!r} is not a URL such as http://collector:4318 or https://HOST/PATH")
    if parts.username is not None or parts.fragment:
        raise UsageError(
            "--otlp: put a password into the variable OTEL_EXPORTER_OTLP_HEADERS, not into the URL"
        )
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise UsageError(f"--otlp {text!r}: {parts.hostname!r} is not a valid host name") from None
    if not _IN_PATH.fullmatch(parts.path + parts.query):
        raise UsageError(f"--otlp {text!r}: write characters that are not plain ASCII as %XX")
    path = parts.path if parts.path not in ("", "/") else _DEFAULT_PATH
    path += f"?{parts.query}" if parts.query else ""
    is_tls = parts.scheme == "https"
    return OtlpTarget(is_tls, parts.hostname, port or (443 if is_tls else 80), path)


def parse_otlp_headers(text: str) -> dict[str, str]:
    """Return the headers of OTEL_EXPORTER_OTLP_HEADERS: NAME=VALUE,NAME=VALUE with percent-encoded values."""
    headers = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = pair.partition("=")
        value = unquote(value.strip())
        if not equals or not _HEADER_NAME.fullmatch(name.strip()) or not _is_plain(value):
            raise UsageError("OTEL_EXPORTER_OTLP_HEADERS is not NAME=VALUE,NAME=VALUE")
        headers[name.strip()] = value
    return headers


def _is_plain(value: str) -> bool:
    return value.isprintable() and value.isascii()


def _choose_jitter() -> float:
    """Return a random number from 0.5 to 1."""
    # The module `random` would load OpenSSL.
    return 0.5 + os.urandom(1)[0] / 510


class OtlpPusher:
    """Sends documents in a thread, the oldest first, from construction to close()."""

    def __init__(
        self,
        target: OtlpTarget,
        headers: Mapping[str, str],
        say: Callable[[str], None],
        *,
        first_pause_s: float = _FIRST_PAUSE_S,
    ) -> None:
        self._target, self._say, self._first_pause_s = target, say, first_pause_s
        self._headers = {
            "Content-Type": "application/json",
            "Content-Encoding": "gzip",
            "User-Agent": "opwatch",
            **headers,
        }
        self._buffer: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._wake, self._stop = threading.Event(), threading.Event()
        # Documents that were dropped because the buffer was full, or refused for good.
        self.dropped = 0
        self.sent = 0
        # The last trouble, so that each is reported once.
        self._trouble = ""
        start_thread("otlp", self._send_until_stopped)

    def push(self, document: bytes) -> None:
        """Buffer a document. The oldest ones make room."""
        packed = compress(document)
        with self._lock:
            self._buffer.append(packed)
            while len(self._buffer) > 1 and (
                len(self._buffer) > MAX_BUFFERED or sum(map(len, self._buffer)) > MAX_BUFFERED_BYTES
            ):
                self._buffer.popleft()
                self.dropped += 1
        self._wake.set()

    def _send_until_stopped(self) -> None:
        pause_s = self._first_pause_s
        while not self._stop.is_set():
            with self._lock:
                document = self._buffer[0] if self._buffer else None
            if document is None:
                self._wake.wait()
                self._wake.clear()
                continue
            wait_s = self._send(document)
            if wait_s is None:
                pause_s = self._first_pause_s
                with self._lock:
                    # It may have been dropped meanwhile.
                    if self._buffer and self._buffer[0] is document:
                        self._buffer.popleft()
                continue
            # Many hosts lose the same receiver at the same time, and must not come back together.
            self._stop.wait(max(wait_s, pause_s * _choose_jitter()))
            pause_s = min(pause_s * 2, _LAST_PAUSE_S)

    def _send(self, document: bytes) -> float | None:
        """Send a document. Return None if done with it, or the least seconds to wait before a retry."""
        from http.client import HTTPException

        try:
            connection = self._connect()
            try:
                connection.request("POST", self._target.path, document, self._headers)
                answer = connection.getresponse()
                text = answer.read(_MAX_ANSWER_BYTES).decode("utf-8", "replace")
                status, after = answer.status, answer.headers.get("Retry-After", "")
            finally:
                connection.close()
        except (OSError, HTTPException) as error:
            self._report(f"cannot push to {self._target.host}:{self._target.port}: {error}; trying again")
            return 0.0
        if status in _RETRIED:
            self._report(f"{self._target.host} answered {status} to a push; trying again")
            return min(float(after), _MAX_RETRY_AFTER_S) if after.isascii() and after.isdigit() else 0.0
        if status // 100 == 2:
            self.sent += 1
            if self._trouble:
                self._trouble = ""
                self._say(f"{self._target.host} accepts pushes again; {self.dropped} were dropped")
            return None
        self.dropped += 1
        self._report(f"{self._target.host} refused a push with {status}: {text.strip()[:200]}")
        return None

    def _connect(self) -> HTTPConnection:
        # Imported late, because http.client and ssl take 6 MB.
        from http.client import HTTPConnection, HTTPSConnection

        kind = HTTPSConnection if self._target.is_tls else HTTPConnection
        return kind(self._target.host, self._target.port, timeout=_TIMEOUT_S)

    def _report(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._say(trouble)

    def close(self, wait_s: float = 0.0) -> None:
        """End, after at most this time for what is buffered."""
        deadline = time.monotonic() + wait_s
        while self._buffer and time.monotonic() < deadline:
            time.sleep(0.02)
        self._stop.set()
        self._wake.set()
