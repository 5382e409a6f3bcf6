"""Answers as values, and as bytes of HTTP/1.1. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

PLAIN_TEXT = "text/plain; charset=utf-8"
# Answers below this size do not get smaller by a packet.
_MIN_GZIP_BYTES = 1000
# Level 1 is fastest; level 6 makes metrics a tenth smaller.
_GZIP_LEVEL, _GZIP_WINDOW, _GZIP_MEMORY = 1, 31, 5
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    414: "URI Too Long",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer before it is encoded. `may_compress`: gzip it if the client accepts that."""

    status: int
    body: bytes
    content_type: str = PLAIN_TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    may_compress: bool = False


def make_error(status: int, reason: str, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """Return an answer with one line of text that says what is wrong."""
    return HttpResponse(
        status, f"{status} {_PHRASES[status]}: {reason}\n".encode(), PLAIN_TEXT, headers or {}
    )


def encode_response(
    response: HttpResponse,
    extra: Mapping[str, str],
    *,
    has_body: bool,
    keeps_alive: bool,
    gzip: bool,
) -> bytes:
    """Return the bytes of an answer. `extra` are headers of every answer; without `has_body` (HEAD) the
    length is that of the body that GET would get."""
    body = response.body
    headers = {"Content-Type": response.content_type, **extra, **response.headers}
    if response.may_compress:
        headers["Vary"] = "Accept, Accept-Encoding"
        if gzip and len(body) >= _MIN_GZIP_BYTES:
            body, headers["Content-Encoding"] = compress(body), "gzip"
    headers["Content-Length"] = str(len(body))
    headers["Connection"] = "keep-alive" if keeps_alive else "close"
    lines = [f"HTTP/1.1 {response.status} {_PHRASES[response.status]}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join((*lines, "", "")).encode("latin-1")
    return head + body if has_body else head


def compress(body: bytes) -> bytes:
    """Return the body in gzip's format."""
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW, _GZIP_MEMORY)
    return packer.compress(body) + packer.flush()
