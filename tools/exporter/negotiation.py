"""Choose the format and the coding of an answer from the headers Accept and Accept-Encoding. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opwatch.metrics.formats import ExpositionFormat

# More entries are not read; Prometheus sends six.
_MAX_ENTRIES = 32


@dataclass(frozen=True, slots=True)
class _Wish:
    """An entry of Accept: a type with its parameters and its weight from 0 to 1000."""

    kind: str
    parameters: dict[str, str]
    weight: int


def _parse_weight(text: str) -> int:
    """Return a weight in thousandths. A weight that is not a number from 0 to 1 counts as 0."""
    whole, _, part = text.partition(".")
    if whole not in ("0", "1") or len(part) > 3 or not (part == "" or (part.isascii() and part.isdigit())):
        return 0
    return min(1000, int(whole) * 1000 + int(part.ljust(3, "0") or 0))


def _parse_wishes(header: str) -> list[_Wish]:
    wishes = []
    for entry in header.split(",")[:_MAX_ENTRIES]:
        kind, *pairs = [part.strip() for part in entry.split(";")]
        parameters = {
            name.strip().lower(): value.strip().strip('"')
            for name, _, value in (pair.partition("=") for pair in pairs)
        }
        weight = _parse_weight(parameters.pop("q", "1"))
        if kind:
            wishes.append(_Wish(kind.lower(), parameters, weight))
    return wishes


def _is_protobuf(wish: _Wish) -> bool:
    return (
        wish.kind == "application/vnd.google.protobuf"
        and wish.parameters.get("proto") == "io.prometheus.client.MetricFamily"
        and wish.parameters.get("encoding", "delimited") == "delimited"
    )


def _is_openmetrics(wish: _Wish) -> bool:
    # Version 0.0.1 is what older scrapers call the same text.
    return wish.kind == "application/openmetrics-text" and wish.parameters.get("version", "1.0.0") in (
        *("0.0.1", "1.0.0"),
    )


def _is_text(wish: _Wish) -> bool:
    return wish.kind == "text/plain" and wish.parameters.get("version", "0.0.4") == "0.0.4"


_MATCHES: dict[ExpositionFormat, Callable[[_Wish], bool]] = {
    ExpositionFormat.PROTOBUF: _is_protobuf,
    ExpositionFormat.OPENMETRICS: _is_openmetrics,
    ExpositionFormat.TEXT: _is_text,
}


def choose_exposition(accept: str) -> ExpositionFormat:
    """Return the format with the highest weight, the first of equals.

    Every other scraper gets text 0.0.4, because one that asked for nothing we have can still read it.
    """
    best, best_weight = ExpositionFormat.TEXT, 0
    for wish in _parse_wishes(accept):
        for exposition, matches in _MATCHES.items():
            if wish.weight > best_weight and matches(wish):
                best, best_weight = exposition, wish.weight
    return best


def accepts_gzip(accept_encoding: str) -> bool:
    """Return True if the client asked for gzip by name or by `*`, with a weight above 0."""
    weights = {wish.kind: wish.weight for wish in _parse_wishes(accept_encoding)}
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0))) > 0
