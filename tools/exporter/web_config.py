"""The file of --web.config.file, as the exporters of Prometheus share it: TLS, passwords, headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from opwatch.errors import BadInput, UsageError
from opwatch.foreign import decode_text, read_bytes
from opwatch.times import parse_time
from opwatch.tools.exporter.yaml_subset import MAX_BYTES, YamlText, YamlValue, parse_yaml

T = TypeVar("T")
VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
# Policies for client certificates, by whether a certificate is wanted and whether it is required. The two
# others of Go accept certificates that nobody has signed.
CLIENT_AUTH = {
    "": (False, False),
    "NoClientCert": (False, False),
    "VerifyClientCertIfGiven": (True, False),
    "RequireAndVerifyClientCert": (True, True),
}
_UNVERIFIED = ("RequestClientCert", "RequireClientCert", "RequireAnyClientCert")
CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
_HEADERS = (
    "Content-Security-Policy",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "X-XSS-Protection",
    "Strict-Transport-Security",
    "Cache-Control",
)
_BCRYPT = re.compile(r"\$2[aby]\$(0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")
# Cost 15 takes 2 s of CPU time for each new password.
_MAX_COST = 15


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The section tls_server_config. Certificates and keys are files, or PEM texts in the file itself."""

    cert: Path | str
    key: Path | str
    client_ca: Path | str | None = None
    wants_client_cert: bool = False
    requires_client_cert: bool = False
    allowed_sans: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    curve: str | None = None
    prefers_server_ciphers: bool = True


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests allowed at once, and the time after which one more is allowed."""

    burst: int
    interval_s: float


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the file asks for. `users` maps names to bcrypt hashes."""

    tls: TlsConfig | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    users: Mapping[str, str] = field(default_factory=dict)
    rate_limit: RateLimit | None = None


def require_kept_protection(old: WebConfig, new: WebConfig) -> None:
    """Raise BadInput if a config read again would open the server to clients that the old one keeps out.

    An editor or a deployment may leave an empty or incomplete file for a moment.
    """
    for key, is_lost in (
        ("tls_server_config", old.tls and not new.tls),
        ("basic_auth_users", old.users and not new.users),
    ):
        if is_lost:
            raise BadInput(f"{key} is gone from the file; restart the exporter to serve without it")


class _Section:
    """A mapping of the file whose members are taken one by one; what is left is unknown."""

    def __init__(self, name: str, value: YamlValue) -> None:
        if isinstance(value, YamlText) and value.is_null:
            value = {}
        if not isinstance(value, dict):
            raise BadInput(f"{name or 'the file'} must be a mapping of KEY: VALUE lines")
        self._name, self._members = name, dict(value)

    def _locate(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key

    def take(self, key: str) -> YamlValue | None:
        value = self._members.pop(key, None)
        return None if isinstance(value, YamlText) and value.is_null else value

    def take_section(self, key: str) -> _Section | None:
        value = self.take(key)
        return None if value is None else _Section(self._locate(key), value)

    def take_text(self, key: str) -> str | None:
        value = self.take(key)
        if value is not None and not isinstance(value, YamlText):
            raise BadInput(f"{self._locate(key)} must be one text")
        return value.text if value else None

    def take_choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        text = self.take_text(key)
        if text is not None and text not in choices:
            raise BadInput(f"{self._locate(key)}: {text!r} is not one of {', '.join(filter(None, choices))}")
        return default if text is None else text

    def take_flag(self, key: str, default: bool) -> bool:
        text = self.take_choice(key, ("true", "false", "yes", "no", "on", "off"), "true" if default else "no")
        return text in ("true", "yes", "on")

    def take_texts(self, key: str) -> tuple[str, ...]:
        value = self.take(key)
        if value is None:
            return ()
        texts = [one.text for one in value if isinstance(one, YamlText)] if isinstance(value, list) else []
        if not isinstance(value, list) or len(texts) != len(value):
            raise BadInput(f"{self._locate(key)} must be a list of texts")
        return tuple(texts)

    def take_mapping(self) -> dict[str, str]:
        """Return all members, which must be texts."""
        return {key: self.take_text(key) or "" for key in list(self._members)}

    def convert(self, key: str, convert: Callable[[str], T]) -> T | None:
        text = self.take_text(key)
        try:
            return None if text is None else convert(text)
        except (ValueError, UsageError) as error:
            raise BadInput(f"{self._locate(key)}: {error}") from None

    def refuse_rest(self) -> None:
        if self._members:
            names = ", ".join(self._locate(key) for key in self._members)
            raise BadInput(f"unknown key {names}" if len(self._members) == 1 else f"unknown keys {names}")


def read_web_config(path: Path) -> WebConfig:
    """Return the file's content. Raise BadInput that names the file, the line or the key."""
    try:
        return parse_web_config(decode_text(read_bytes(path, MAX_BYTES)), path.parent)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def parse_web_config(text: str, folder: Path) -> WebConfig:
    """Return the content of a file in a folder, to which the paths in it are relative."""
    document = _Section("", parse_yaml(text))
    tls = document.take_section("tls_server_config")
    http = document.take_section("http_server_config")
    users = document.take_section("basic_auth_users")
    limit = document.take_section("rate_limit")
    document.refuse_rest()
    return WebConfig(
        tls=_parse_tls(tls, folder) if tls else None,
        headers=_parse_http(http) if http else {},
        users=_parse_users(users) if users else {},
        rate_limit=_parse_limit(limit) if limit else None,
    )


def _take_pem(section: _Section, name: str, folder: Path) -> Path | str | None:
    """Return a file by `name`_file, or a PEM text by `name`."""
    text, file = section.take_text(name), section.take_text(f"{name}_file")
    if text and file:
        raise BadInput(f"tls_server_config: give {name} or {name}_file, not both")
    return text or (folder / file if file else None)


def _parse_tls(section: _Section, folder: Path) -> TlsConfig | None:
    cert, key, ca = (_take_pem(section, name, folder) for name in ("cert", "key", "client_ca"))
    auth = section.take_text("client_auth_type") or ""
    sans = section.take_texts("client_allowed_sans")
    least = section.take_choice("min_version", VERSIONS, "TLS12")
    most = section.take_choice("max_version", VERSIONS, "TLS13")
    ciphers, curves = section.take_texts("cipher_suites"), section.take_texts("curve_preferences")
    prefers = section.take_flag("prefer_server_cipher_suites", True)
    section.refuse_rest()
    if not cert or not key:
        if cert or key or ca or auth or sans:
            raise BadInput("tls_server_config: cert_file and key_file are both needed")
        return None
    if auth in _UNVERIFIED:
        raise BadInput(
            f"tls_server_config.client_auth_type: {auth} accepts unsigned certificates, which is not "
            "supported; use RequireAndVerifyClientCert or VerifyClientCertIfGiven"
        )
    if auth not in CLIENT_AUTH:
        known = ", ".join(filter(None, CLIENT_AUTH))
        raise BadInput(f"tls_server_config.client_auth_type: {auth!r} is not one of {known}")
    wants, requires = CLIENT_AUTH[auth]
    if wants != bool(ca):
        missing = "client_ca_file is needed for" if wants else "client_ca_file needs"
        raise BadInput(
            f"tls_server_config: {missing} client_auth_type {auth or 'RequireAndVerifyClientCert'}"
        )
    if sans and not requires:
        raise BadInput(
            "tls_server_config.client_allowed_sans needs client_auth_type RequireAndVerifyClientCert"
        )
    if VERSIONS.index(least) > VERSIONS.index(most):
        raise BadInput(f"tls_server_config: min_version {least} is above max_version {most}")
    return TlsConfig(
        *(cert, key, ca, wants, requires, sans, least, most, ciphers),
        curve=_parse_curve(curves),
        prefers_server_ciphers=prefers,
    )


def _parse_curve(names: tuple[str, ...]) -> str | None:
    for name in names:
        if name not in CURVES:
            known = ", ".join(CURVES)
            raise BadInput(f"tls_server_config.curve_preferences: {name!r} is not one of {known}")
    if len(names) > 1:
        raise BadInput("tls_server_config.curve_preferences: only one curve can be chosen here")
    return CURVES[names[0]] if names else None


def _parse_http(section: _Section) -> dict[str, str]:
    # This server has HTTP/1.1 only, with which every client of HTTP/2 can do.
    section.take_flag("http2", True)
    headers = section.take_section("headers")
    section.refuse_rest()
    values = headers.take_mapping() if headers else {}
    for name, value in values.items():
        if name not in _HEADERS:
            known = ", ".join(_HEADERS)
            raise BadInput(f"http_server_config.headers: {name!r} cannot be set; allowed are {known}")
        if not re.fullmatch(r"[\x20-\x7e]*", value):
            raise BadInput(f"http_server_config.headers: the value of {name} is not plain ASCII")
    return {name: value for name, value in values.items() if value}


def _parse_users(section: _Section) -> dict[str, str]:
    users = section.take_mapping()
    for name, hashed in users.items():
        # RFC 7617: the name ends at the first colon.
        if ":" in name:
            raise BadInput(f"basic_auth_users: the name {name!r} has a colon")
        match = _BCRYPT.fullmatch(hashed)
        if not match:
            raise BadInput(
                f"basic_auth_users: the password of {name!r} is not a bcrypt hash; "
                f"htpasswd -nBC 10 '' prints one"
            )
        if int(match[1]) > _MAX_COST:
            raise BadInput(
                f"basic_auth_users: the hash of {name!r} has cost {match[1]}, and each check would take "
                f"seconds; use at most {_MAX_COST}"
            )
    return users


def _parse_limit(section: _Section) -> RateLimit | None:
    burst, interval = section.convert("burst", _parse_burst), section.convert("interval", parse_time)
    section.refuse_rest()
    if burst is None and interval is None:
        return None
    if not burst or not interval:
        raise BadInput("rate_limit: burst and interval are both needed, and are more than 0")
    return RateLimit(burst, interval)


def _parse_burst(text: str) -> int:
    if not re.fullmatch("[0-9]{1,6}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a number")
    return int(text)
