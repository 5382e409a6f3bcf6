"""Parse the requests of HTTP/1.0 and HTTP/1.1. Pure: bytes of a connection to requests or refusals."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Bytes of a request line and of all header lines together. A scrape has 300.
MAX_TARGET_BYTES, MAX_HEAD_BYTES, MAX_HEADERS = 2048, 16384, 100
# Blank lines that a client may send before a request, RFC 9112 section 2.2.
_MAX_BLANK_LINES = 4
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(%s) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])" % _TOKEN)
_HEADER = re.compile(rb"(%s):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*" % _TOKEN)
_BLANKS = re.compile(rb"(?:\r?\n)+")
_END = re.compile(rb"\r?\n\r?\n")
_ABSOLUTE = re.compile(r"https?://[^/?#]*", re.IGNORECASE)
# Headers of which a second one contradicts the first.
_SINGLE = ("host", "content-length", "authorization")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request without a body. Header names are in lower case; `path` is without the query."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    keeps_alive: bool = True


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request that gets an error and the end of its connection, because its end in the stream is
    unknown."""

    status: int
    reason: str


class RequestReader:
    """Collects the bytes of one connection, and takes requests out of them."""

    def __init__(self) -> None:
        self._pending = bytearray()

    @property
    def has_begun(self) -> bool:
        """Return True if a part of a request has arrived."""
        return bool(self._pending)

    def add_bytes(self, data: bytes) -> None:
        self._pending += data

    @property
    def is_full(self) -> bool:
        """Return True if no more bytes should be read before a request is taken."""
        return len(self._pending) > MAX_HEAD_BYTES

    def take_request(self) -> HttpRequest | BadRequest | None:
        """Return the next request, or None if it is not complete."""
        if blanks := _BLANKS.match(self._pending):
            if blanks[0].count(b"\n") > _MAX_BLANK_LINES:
                return BadRequest(400, "the request begins with blank lines")
            del self._pending[: blanks.end()]
        end = _END.search(self._pending, 0, MAX_HEAD_BYTES + 4)
        if not end:
            return self._judge_incomplete()
        head = bytes(self._pending[: end.end()])
        del self._pending[: end.end()]
        return parse_head(head)

    def _judge_incomplete(self) -> BadRequest | None:
        """Return a refusal if the bytes so far cannot become an acceptable request."""
        line, found, _ = bytes(self._pending[: MAX_TARGET_BYTES + 64]).partition(b"\n")
        if not found and len(line) > MAX_TARGET_BYTES:
            return BadRequest(414, f"the request line has more than {MAX_TARGET_BYTES} bytes")
        if found and isinstance(first := _parse_request_line(line.removesuffix(b"\r")), BadRequest):
            return first
        if len(self._pending) > MAX_HEAD_BYTES:
            return BadRequest(431, f"the request's headers have more than {MAX_HEAD_BYTES} bytes")
        return None


@dataclass(frozen=True, slots=True)
class _RequestLine:
    """The parts of a request's first line."""

    method: str
    path: str
    is_1_0: bool


def _parse_request_line(line: bytes) -> _RequestLine | BadRequest:
    if len(line) > MAX_TARGET_BYTES:
        return BadRequest(414, f"the request line has more than {MAX_TARGET_BYTES} bytes")
    parts = _REQUEST_LINE.fullmatch(line)
    if not parts:
        return BadRequest(400, "the request line is not METHOD TARGET HTTP/1.1")
    if parts[3] != b"1":
        return BadRequest(505, "only HTTP/1.0 and HTTP/1.1 are spoken here")
    target = parts[2].decode("ascii")
    if absolute := _ABSOLUTE.match(target):
        target = target[absolute.end() :] or "/"
    path = target.partition("?")[0]
    if not path.startswith("/") and path != "*":
        return BadRequest(400, "the target of the request is not a path")
    return _RequestLine(parts[1].decode("ascii"), path, parts[4] == b"0")


def parse_head(head: bytes) -> HttpRequest | BadRequest:
    """Return the request of a complete head, given with its blank line."""
    first, *lines = [line.removesuffix(b"\r") for line in head.split(b"\n")[:-2]]
    line = _parse_request_line(first)
    if isinstance(line, BadRequest):
        return line
    if len(lines) > MAX_HEADERS:
        return BadRequest(431, f"the request has more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for raw in lines:
        parts = _HEADER.fullmatch(raw)
        if not parts:
            return BadRequest(400, "a header is not NAME: VALUE")
        name, value = parts[1].decode("ascii").lower(), parts[2].decode("latin-1")
        if name in headers and name in _SINGLE:
            return BadRequest(400, f"the header {name} was sent twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return _check_headers(line, headers)


def _check_headers(line: _RequestLine, headers: dict[str, str]) -> HttpRequest | BadRequest:
    if not line.is_1_0 and "host" not in headers:
        return BadRequest(400, "an HTTP/1.1 request needs the header Host")
    length = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,20}", length, re.ASCII):
        return BadRequest(400, "the header Content-Length is not a number")
    has_body = int(length) > 0 or "transfer-encoding" in headers
    if has_body and line.method in ("GET", "HEAD"):
        return BadRequest(400, f"a {line.method} request with a body is not accepted")
    options = [word.strip().lower() for word in headers.get("connection", "").split(",")]
    # A body that is not read ends the connection.
    keeps = not has_body and "close" not in options and (not line.is_1_0 or "keep-alive" in options)
    return HttpRequest(line.method, line.path, headers, keeps)
