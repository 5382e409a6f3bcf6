"""TLS as the web config asks for it. Imported only with TLS, because OpenSSL takes 5 MB of memory."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

from opwatch.errors import BadInput
from opwatch.tools.exporter.web_config import TlsConfig

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
# Names of Go for suites up to TLS 1.2, and those of OpenSSL. Suites of TLS 1.3 cannot be chosen.
_SUITES = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
}
_TLS_1_3_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


@contextlib.contextmanager
def _as_file(pem: Path | str) -> Iterator[str]:
    """Yield the name of a file with a PEM text, because OpenSSL's functions take files."""
    if isinstance(pem, Path):
        yield str(pem)
        return
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def make_tls_context(config: TlsConfig) -> ssl.SSLContext:
    """Return the context of a server. Raise BadInput that names the file or the key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.min_version]
    context.maximum_version = _VERSIONS[config.max_version]
    # A scraper that sends no close_notify has not lost anything, because lengths are given.
    context.options |= getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
    if config.prefers_server_ciphers:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    _load_certificate(context, config)
    if config.wants_client_cert and config.client_ca is not None:
        _load_client_ca(context, config.client_ca)
        required = config.requires_client_cert
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    if config.cipher_suites:
        _choose_suites(context, config.cipher_suites)
    if config.curve:
        try:
            context.set_ecdh_curve(config.curve)
        except (ValueError, ssl.SSLError):
            raise BadInput(
                f"tls_server_config.curve_preferences: OpenSSL here has no {config.curve}"
            ) from None
    return context


def _load_certificate(context: ssl.SSLContext, config: TlsConfig) -> None:
    for name, pem in (("cert_file", config.cert), ("key_file", config.key)):
        _require_readable(name, pem)
    with _as_file(config.cert) as cert, _as_file(config.key) as key:
        try:
            # An encrypted key would ask for its password on the terminal.
            context.load_cert_chain(cert, key, password=_refuse_password)
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).lower().replace("_", " ")
            raise BadInput(
                f"tls_server_config: cert_file and key_file are not a certificate with its key: {reason}"
            ) from None


def _refuse_password() -> str:
    raise BadInput("tls_server_config: the key in key_file is encrypted; store it without a password")


def _require_readable(name: str, pem: Path | str) -> None:
    if isinstance(pem, Path):
        try:
            with pem.open("rb"):
                return
        except OSError as error:
            raise BadInput(f"tls_server_config.{name}: {pem}: {error.strerror}") from None


def _load_client_ca(context: ssl.SSLContext, pem: Path | str) -> None:
    _require_readable("client_ca_file", pem)
    with _as_file(pem) as file:
        try:
            context.load_verify_locations(cafile=file)
        except ssl.SSLError:
            raise BadInput("tls_server_config.client_ca_file has no certificates in PEM format") from None


def _choose_suites(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in _SUITES and name not in _TLS_1_3_SUITES]
    if unknown:
        raise BadInput(f"tls_server_config.cipher_suites: unknown suite {', '.join(unknown)}")
    chosen = [_SUITES[name] for name in names if name in _SUITES]
    if not chosen:
        return
    try:
        context.set_ciphers(":".join(chosen))
    except ssl.SSLError:
        raise BadInput("tls_server_config.cipher_suites: OpenSSL here has none of them") from None


def list_client_names(connection: ssl.SSLSocket) -> list[str]:
    """Return the alternative names in the client's certificate, none without a certificate."""
    certificate = connection.getpeercert() or {}
    names: list[tuple[str, str]] = list(certificate.get("subjectAltName", ()))  # type: ignore[arg-type]
    return [value for kind, value in names if kind in ("DNS", "email", "IP Address", "URI")]
