"""Requests to the exporter, and its web config: answered or refused, however the bytes are cut.

python -m tests.fuzz.web [INPUTS [SEED]]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from opwatch.metrics.formats import ExpositionFormat
from opwatch.tools.exporter.http_request import BadRequest, HttpRequest, RequestReader
from opwatch.tools.exporter.http_response import HttpResponse, encode_response, make_error
from opwatch.tools.exporter.negotiation import accepts_gzip
from opwatch.tools.exporter.passwords import parse_basic
from opwatch.tools.exporter.site import ExporterSite
from opwatch.tools.exporter.web_config import parse_web_config
from tests.fuzz.history import damage_bytes
from tests.fuzz.rules import RefusedOrValid, run_from_arguments

_PROTOBUF = (
    b"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6"
)
_REQUESTS = (
    b"GET /metrics HTTP/1.1\r\nHost: a:9854\r\nUser-Agent: Prometheus/3.5.0\r\nAccept: "
    + _PROTOBUF
    + b",text/plain;"
    b"version=0.0.4;q=0.2,*/*;q=0.1\r\nAccept-Encoding: gzip\r\n"
    b"X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\nHEAD /-/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    b"GET http://a/-/healthy?x=1 HTTP/1.1\r\nHost: a\r\nAuthorization: Basic YWxpY2U6c2VjcmV0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)
_PARTS = (
    *(
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b"\0",
        b"\xff",
        b"?",
        b"%00",
        b"/",
        b"..",
        b"HTTP/1.1",
        b"q=0.5;",
    ),
    *(
        b"Content-Length: 9\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Host: b\r\n",
        b"Connection: keep-alive\r\n",
    ),
    *(
        b"Accept: " + b"*/*," * 500 + b"\r\n",
        b"a" * 3000,
        b"X: y\r\n" * 120,
        b"Authorization: Basic ====\r\n",
    ),
)
_CONFIG = b"""\
tls_server_config:
  cert_file: server.crt
  key_file: 'server.key'   # quoted
  client_auth_type: "RequireAndVerifyClientCert"
  client_ca: |
    -----BEGIN CERTIFICATE-----
    MII
    -----END CERTIFICATE-----
  client_allowed_sans: [a.example, "b"]
  cipher_suites:
  - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
http_server_config:
  headers: {X-Frame-Options: deny}
rate_limit:
  burst: 20
  interval: 1s
basic_auth_users:
  alice: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi
"""
_YAML_PARTS = (
    *(
        b"\n",
        b"  ",
        b"\t",
        b":",
        b": ",
        b"- ",
        b"#",
        b"'",
        b'"',
        b"[",
        b"]",
        b"{",
        b"}",
        b"|",
        b"&a",
        b"*a",
        b"!!x",
    ),
    *(b"---\n", b"\\x", b"\\ud800", b"\x00", b"\xff", b"a: " * 30, b"[" * 50, b" " * 500, b"a" * 2000),
)
_STATUSES = (200, 400, 404, 405, 414, 431, 505)


def _change(raw: bytes, parts: tuple[bytes, ...], chance: random.Random) -> bytes:
    """Return the bytes with parts inserted, removed or repeated, or with damaged bytes."""
    for _ in range(chance.randrange(4)):
        at, end = sorted(chance.randrange(len(raw) + 1) for _ in range(2))
        kind = chance.randrange(4)
        if kind == 0:
            raw = raw[:at] + chance.choice(parts) + raw[at:]
        elif kind == 1:
            raw = raw[:at] + raw[end:]
        elif kind == 2:
            raw = raw[:end] + raw[at:]
        elif raw:
            raw = damage_bytes(raw, chance)
    return raw[: 1 << 16]


def _take_all(raw: bytes, sizes: list[int]) -> list[HttpRequest | BadRequest]:
    """Return what a connection's stream contains if it arrives in pieces of these sizes."""
    reader, taken = RequestReader(), []
    begin = 0
    for size in [*sizes, len(raw)]:
        reader.add_bytes(raw[begin : begin + size])
        begin += size
        while request := reader.take_request():
            taken.append(request)
            if isinstance(request, BadRequest) or not request.keeps_alive:
                return taken
    return taken


class WebFuzzer:
    """Answers changed requests, and reads changed web configs."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._site = ExporterSite(self._collect, lambda: None)

    @staticmethod
    def _collect(form: ExpositionFormat) -> bytes:
        return form.value.encode() * 20

    def run_inputs(self, inputs: int) -> None:
        for number in range(inputs):
            if number % 4:
                self._answer(_change(self._chance.choice(_REQUESTS), _PARTS, self._chance))
            else:
                self._read_config(_change(_CONFIG, _YAML_PARTS, self._chance))

    def _answer(self, raw: bytes) -> None:
        chance = self._chance
        with RefusedOrValid("request to the exporter"):
            whole = _take_all(raw, [])
            sizes = [chance.randrange(1, 40) for _ in range(chance.randrange(30))]
            in_pieces = _take_all(raw, sizes)
            # A refusal may come before the end of the head, with another reason.
            ends = [[one for one in taken if isinstance(one, HttpRequest)] for taken in (whole, in_pieces)]
            assert ends[0] == ends[1], raw
            for request in whole:
                self._check_answer(request)

    def _check_answer(self, request: HttpRequest | BadRequest) -> None:
        answers: list[HttpResponse] = []
        if isinstance(request, HttpRequest):
            self._site.handle(request, "peer", answers.append)
            parse_basic(request.headers.get("authorization", ""))
            gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        else:
            answers.append(make_error(request.status, request.reason))
            gzip = False
        [response] = answers
        assert response.status in _STATUSES
        data = encode_response(response, {}, has_body=True, keeps_alive=False, gzip=gzip)
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("ascii").split("\r\n")
        assert f"Content-Length: {len(body)}" in lines

    def _read_config(self, raw: bytes) -> None:
        with RefusedOrValid("web config"):
            parse_web_config(raw.decode("utf-8", "replace"), Path("/nowhere"))


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    WebFuzzer(seed).run_inputs(inputs)


if __name__ == "__main__":
    sys.exit(run_from_arguments(run, 1_000_000))
