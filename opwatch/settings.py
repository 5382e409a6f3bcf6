"""Parse TOML settings, our own and other people's, within limits of size and depth."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from typing import Any

from opwatch.errors import BadInput
from opwatch.foreign import MAX_DEPTH

_TOML_BYTES, _TOML_LINE = 1 << 18, 1000


def parse_toml(raw: bytes, where: str) -> dict[str, Any]:
    """Return a TOML document. Raise BadInput if invalid, or built to keep a parser busy."""
    if len(raw) > _TOML_BYTES:
        raise BadInput(f"{where} has more than {_TOML_BYTES} bytes, too many for a settings file")
    if max(map(len, raw.split(b"\n"))) > _TOML_LINE:
        raise BadInput(f"{where} has a line of more than {_TOML_LINE} bytes")
    try:
        document = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{where}: {error}") from error
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        level = [one for value in level for one in _list_children(value)]
    if level:
        raise BadInput(f"{where}: its values are nested more than {MAX_DEPTH} levels deep")
    return document


def _list_children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
