"""The web config is read like the exporters of Prometheus read it, and refused with the line or the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.tools.exporter.web_config import (
    RateLimit,
    WebConfig,
    parse_web_config,
    require_kept_protection,
)
from opwatch.tools.exporter.yaml_subset import YamlText, YamlValue, parse_yaml

_HASH = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"
_FULL = f"""\
# The example of the exporter-toolkit, with everything that is supported.
tls_server_config:
  cert_file: server.crt
  key_file: '/keys/it''s.key'   # quoted
  client_auth_type: "RequireAndVerifyClientCert"
  client_ca_file: ca.crt
  client_allowed_sans:
    - prometheus.example
    - spiffe://cluster/ns/monitoring
  min_version: TLS13
  max_version: "TLS13"
  prefer_server_cipher_suites: true
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  curve_preferences:
  - CurveP256
http_server_config:
  http2: true
  headers:
    X-Frame-Options: deny
    Cache-Control: "no-store, max-age=0"
rate_limit:
  burst: 20
  interval: 1s
basic_auth_users:
  alice: {_HASH}
  "bob # 2": {_HASH}
"""


def simplify(value: YamlValue) -> object:
    if isinstance(value, YamlText):
        return value.text
    if isinstance(value, list):
        return [simplify(one) for one in value]
    return {key: simplify(one) for key, one in value.items()}


def parse(text: str) -> WebConfig:
    return parse_web_config(text, Path("/etc/web"))


def refuse(text: str) -> str:
    with pytest.raises(BadInput) as caught:
        parse(text)
    return str(caught.value)


def test_every_setting_is_read() -> None:
    config = parse(_FULL)
    tls = config.tls
    assert tls
    assert (tls.cert, tls.key) == (Path("/etc/web/server.crt"), Path("/keys/it's.key"))
    assert (tls.wants_client_cert, tls.requires_client_cert) == (True, True)
    assert tls.client_ca == Path("/etc/web/ca.crt")
    assert tls.allowed_sans == ("prometheus.example", "spiffe://cluster/ns/monitoring")
    assert (tls.min_version, tls.max_version, tls.curve) == ("TLS13", "TLS13", "prime256v1")
    assert len(tls.cipher_suites) == 2
    assert config.headers == {"X-Frame-Options": "deny", "Cache-Control": "no-store, max-age=0"}
    assert config.users == {"alice": _HASH, "bob # 2": _HASH}
    assert config.rate_limit == RateLimit(20, 1.0)


@pytest.mark.parametrize(
    "text", ["", "\n# nothing\n", "---\n", "{}", "tls_server_config:\nbasic_auth_users: {}\n"]
)
def test_empty_file_asks_for_nothing(text: str) -> None:
    assert parse(text) == WebConfig()


def test_certificate_can_be_in_the_file() -> None:
    pem = "-----BEGIN CERTIFICATE-----\n  MII#x\n-----END CERTIFICATE-----\n"
    text = "tls_server_config:\n  cert: |\n" + "".join(f"    {line}\n" for line in pem.splitlines())
    tls = parse(text + "  key_file: k\n").tls
    assert tls
    assert tls.cert == pem


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tls_config:\n", "tls_config"),
        ("tls_server_config:\n  cert_fle: a\n", "tls_server_config.cert_fle"),
        ("http_server_config:\n  http3: true\n", "http_server_config.http3"),
        ("http_server_config:\n  headers:\n    Server: x\n", "Server"),
        ("rate_limit:\n  burst: 3\n  per: 1s\n", "rate_limit.per"),
        ("rate_limit:\n  burst: -1\n  interval: 1s\n", "rate_limit.burst"),
        ("tls_server_config:\n  cert_file: a\n", "key_file"),
        ("tls_server_config:\n  cert_file: a\n  cert: b\n  key_file: c\n", "not both"),
        (
            "tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type: RequireAnyClientCert\n",
            "RequireAnyClientCert",
        ),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n  client_auth_type: Foo\n", "'Foo'"),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n  client_ca_file: c\n", "client_auth_type"),
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n  min_version: TLS14\n", "TLS14"),
        (
            "tls_server_config:\n  cert_file: a\n  key_file: b\n  min_version: TLS13\n  max_version: TLS12\n",
            "above",
        ),
        ("basic_auth_users:\n  alice: secret\n", "bcrypt"),
        (f"basic_auth_users:\n  alice: {_HASH.replace('$10$', '$31$')}\n", "cost 31"),
        (f'basic_auth_users:\n  "a:b": {_HASH}\n', "colon"),
        ("basic_auth_users: alice\n", "basic_auth_users"),
        ("http_server_config:\n  http2: maybe\n", "http2"),
    ],
)
def test_setting_that_cannot_be_followed_is_refused_by_name(text: str, named: str) -> None:
    assert named in refuse(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: 1\na: 2\n", 2),
        ("a:\n\tb: 1\n", 2),
        ("a: &anchor b\n", 1),
        ("a: !!str b\n", 1),
        ("a: >\n  b\n", 1),
        ("a: *b\n", 1),
        ("a: 'b\n", 1),
        ('a: "b\\q"\n', 1),
        ("a: [b, c\n", 1),
        ("a: {b: c\n", 1),
        ("a: b: c\n", 1),
        ("a: b\n   c: d\n", 2),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: \x01\n", 1),
        ("- a: b\n", 1),
    ],
)
def test_text_outside_the_subset_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(BadInput, match=rf"^line {line}: "):
        parse_yaml(text)


def test_deep_nesting_is_refused() -> None:
    for text in ("[" * 100_000, "{a: " * 5000, "".join(f"{' ' * n}a:\n" for n in range(100))):
        with pytest.raises(BadInput):
            parse_yaml(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b # c\n", {"a": "b"}),
        ("a: b#c\n", {"a": "b#c"}),
        ("a: 'b # c'\n", {"a": "b # c"}),
        ('a: "b\\n\\x41\\u00e9"\n', {"a": "b\nA\xe9"}),
        ("a:\n- b\n- 'c: d'\ne: f\n", {"a": ["b", "c: d"], "e": "f"}),
        ("a:\n  b:\n    c: d\n  e: f\n", {"a": {"b": {"c": "d"}, "e": "f"}}),
        ("a: {b: c, 'd': [e, f], g: {}}\n", {"a": {"b": "c", "d": ["e", "f"], "g": {}}}),
        ("a: http://x:1/y\n", {"a": "http://x:1/y"}),
        ("a: b\r\nc: d\r\n", {"a": "b", "c": "d"}),
        ("a: |-\n  b\n\n  c\n", {"a": "b\n\nc"}),
    ],
)
def test_subset_of_yaml_is_read(text: str, expected: object) -> None:
    assert simplify(parse_yaml(text)) == expected


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tls_server_config:\n  cert_file: a\n  key_file: b\n", "tls_server_config"),
        (f"basic_auth_users:\n  alice: {_HASH}\n", "basic_auth_users"),
    ],
)
def test_config_read_again_must_not_open_the_server(text: str, key: str) -> None:
    require_kept_protection(parse(text), parse(text))
    require_kept_protection(parse(""), parse(text))
    with pytest.raises(BadInput, match=key):
        require_kept_protection(parse(text), parse(""))
