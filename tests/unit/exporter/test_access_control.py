"""TLS, client certificates and passwords, as a client sees them."""

from __future__ import annotations

import base64
import contextlib
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.metrics.formats import ExpositionFormat
from opwatch.tools.exporter.event_loop import EventLoop
from opwatch.tools.exporter.http_server import HttpServer
from opwatch.tools.exporter.passwords import BcryptLibrary, LoginChecker, parse_basic
from opwatch.tools.exporter.site import ExporterSite
from opwatch.tools.exporter.tls import make_tls_context
from opwatch.tools.exporter.web_config import read_web_config

# "secret", by the lowest cost.
_HASH = "$2y$04$abcdefghijklmnopqrstuuLt5YyuJwNfU4KZQzBtUoRPaYwOqm4AK"
_BODY = b"metric 1\n"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with certificates of the server, and of a client in two names."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("server", "client"):
        names = f"subjectAltName=DNS:{name}.example,IP:127.0.0.1"
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        files = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"))
        argv = ["openssl", "req", "-x509", *key, "-subj", f"/CN={name}", "-addext", names, *files]
        subprocess.run(argv, check=True, capture_output=True)
    return folder


@contextlib.contextmanager
def serve(text: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Serve with a web config until the end."""
    file = folder / "web.yml"
    file.write_text(text)
    config = read_web_config(file)
    loop = EventLoop()

    def collect(form: ExpositionFormat) -> bytes:
        return _BODY

    site = ExporterSite(collect, lambda: None)
    site.apply_config(config, LoginChecker(config.users, loop.call_soon) if config.users else None)
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = HttpServer(loop, [listener], site, make_tls_context(config.tls) if config.tls else None)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield address
    finally:
        loop.call_soon(loop.stop)
        thread.join(10)
        server.close()
        loop.close()


def ask(client: socket.socket, *lines: str) -> tuple[int, bytes]:
    """Return the status and all bytes of an answer."""
    request = "\r\n".join(("GET /metrics HTTP/1.1", "Host: a", "Connection: close", *lines, "", ""))
    client.sendall(request.encode())
    data = b"".join(iter(lambda: client.recv(65536), b""))
    return int(data.split(b" ", 2)[1]), data


def ask_tls(address: tuple[str, int], keys: Path, *, with_client_cert: bool = False) -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=str(keys / "server.crt"))
    if with_client_cert:
        context.load_cert_chain(keys / "client.crt", keys / "client.key")
    with (
        socket.create_connection(address, 10) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as client,
    ):
        return ask(client)


def make_login(name: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


_TLS = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n"
_CLIENTS = _TLS + "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: client.crt\n"


def test_tls_client_gets_metrics(keys: Path) -> None:
    with serve(_TLS, keys) as address:
        for _ in range(2):
            status, data = ask_tls(address, keys)
            assert (status, data.endswith(_BODY)) == (200, True)


def test_plain_request_to_a_tls_port_is_answered(keys: Path) -> None:
    with serve(_TLS, keys) as address, socket.create_connection(address, 10) as client:
        status, data = ask(client)
        assert status == 400
        assert b"https" in data


def test_rubbish_to_a_tls_port_harms_nobody(keys: Path) -> None:
    with serve(_TLS, keys) as address:
        for data in (
            b"",
            b"\x16",
            b"\x16\x03\x01\x02\x00" + b"\xff" * 600,
            b"\x16\x03\x01\xff\xff" + b"a" * 70000,
        ):
            with socket.create_connection(address, 10) as client, contextlib.suppress(OSError):
                client.sendall(data)
        assert ask_tls(address, keys)[0] == 200


def test_client_needs_its_certificate(keys: Path) -> None:
    with serve(_CLIENTS, keys) as address:
        assert ask_tls(address, keys, with_client_cert=True)[0] == 200
        with pytest.raises((ssl.SSLError, ConnectionError, IndexError)):
            ask_tls(address, keys)


def test_client_needs_an_allowed_name(keys: Path) -> None:
    for name, status in (("client.example", 200), ("other.example", 403)):
        with serve(f"{_CLIENTS}  client_allowed_sans: [{name}]\n", keys) as address:
            assert ask_tls(address, keys, with_client_cert=True)[0] == status


def test_oldest_allowed_version_is_kept(keys: Path) -> None:
    with serve(f"{_TLS}  min_version: TLS13\n", keys) as address:
        context = ssl.create_default_context(cafile=str(keys / "server.crt"))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(address, 10) as raw, pytest.raises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(raw, server_hostname="127.0.0.1")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (_TLS.replace("server.key", "client.key"), "key"),
        (_TLS.replace("server.key", "missing.key"), "missing.key"),
        (_TLS.replace("server.crt", "server.key"), "certificate"),
        (_TLS + "  cipher_suites: [TLS_FOO]\n", "TLS_FOO"),
        (_CLIENTS.replace("client.crt", "server.key"), "client_ca_file"),
    ],
)
def test_bad_certificate_is_refused_by_name(text: str, named: str, keys: Path) -> None:
    (keys / "bad.yml").write_text(text)
    config = read_web_config(keys / "bad.yml")
    assert config.tls
    with pytest.raises(BadInput, match=re.escape(named)):
        make_tls_context(config.tls)


def test_password_is_checked(tmp_path: Path) -> None:
    library = BcryptLibrary()
    hashed = library.hash_password(b"secret", _HASH[:29].encode()).decode()
    text = (
        f"basic_auth_users:\n  alice: {hashed}\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\n"
    )
    with serve(text, tmp_path) as address:
        logins = {
            make_login("alice", "secret"): 200,
            make_login("alice", "secret\0"): 401,
            make_login("alice", "Secret"): 401,
            make_login("bob", "secret"): 401,
            make_login("alice", "x" * 5000): 401,
            "Authorization: Bearer abc": 401,
            "Authorization: Basic %%%": 401,
            "X-Nothing: here": 401,
        }
        for _ in range(2):
            for line, expected in logins.items():
                with socket.create_connection(address, 10) as client:
                    status, data = ask(client, line)
                assert (line, status) == (line, expected)
                assert b"X-Frame-Options: deny\r\n" in data
                assert (b"WWW-Authenticate: Basic" in data) == (expected == 401)


def test_requests_above_the_rate_limit_are_refused(tmp_path: Path) -> None:
    with serve("rate_limit:\n  burst: 2\n  interval: 1h\n", tmp_path) as address:
        statuses = []
        for _ in range(3):
            with socket.create_connection(address, 10) as client:
                statuses.append(ask(client)[0])
        assert statuses == [200, 200, 429]


def test_login_is_taken_from_the_header() -> None:
    assert parse_basic("Basic " + base64.b64encode(b"a:b:c").decode()) == ("a", b"b:c")
    assert parse_basic("basic " + base64.b64encode(b":").decode()) == ("", b"")
    assert parse_basic("Basic " + base64.b64encode(b"ab").decode()) is None
    assert parse_basic("Basic \xff") is None


def test_each_waiting_check_gets_its_verdict_when_the_users_change() -> None:
    verdicts: list[bool] = []
    checker = LoginChecker({"a": _HASH}, lambda call: call())
    is_full = False
    for number in range(100_000):
        login = base64.b64encode(b"a:%d" % number).decode()
        if not checker.check(f"Basic {login}", verdicts.append):
            is_full = True
            break
    checker.close()
    deadline = time.monotonic() + 20
    while len(verdicts) < number and time.monotonic() < deadline:
        time.sleep(0.01)
    assert is_full
    assert verdicts == [False] * number
