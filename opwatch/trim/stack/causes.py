"""Catalogue of the causes of lost trims, read from causes.toml and documented in docs/method-trim.md."""

from __future__ import annotations

import enum
import functools
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opwatch.errors import OpwatchError

PACKAGED = Path(__file__).parent / "causes.toml"
STAGES = ("V0", "V1", "V2", "V3")
SEEN_BY = ("check", "audit", "prove")
PROOFS = ("measured", "source", "documented", "unverified")
# Names that a remedy may contain in braces.
BLANKS = ("mount", "device", "label", "disk", "pool", "file", "option")
# The start of a table, and the line with its code.
_TABLE = "\n[[cause]]\n"
_CODE = re.compile(r'^code = "(.+)"$', re.MULTILINE)


class Effect(enum.StrEnum):
    """Effect of a cause on a trim, from worst to harmless."""

    STOPS = "stops"
    SKIPS = "skips"
    SHORTENS = "shortens"
    HIDES = "hides"
    HARMLESS = "harmless"


@dataclass(frozen=True, slots=True)
class Cause:
    """An entry of the catalogue. `stages` are the stages at which a trace shows the cause, see
    docs/method-trim.md."""

    code: str
    number: int
    title: str
    layer: str
    stages: tuple[str, ...]
    effect: Effect
    seen_by: tuple[str, ...]
    recognised: str
    remedy: str
    proof: str
    evidence: str
    kernels: str
    caveat: str | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """A cause found on a device or mount (`where`). `observed` is the evidence; `lost_bytes` is None if
    unknown."""

    cause: Cause
    where: str
    observed: str
    lost_bytes: int | None = None
    blanks: Mapping[str, str] = field(default_factory=dict)

    @property
    def code(self) -> str:
        return self.cause.code

    @property
    def advice(self) -> list[str]:
        """The remedy with the device's names filled in, split into text (even indices) and shell commands
        (odd indices). An unknown name stays in angle brackets."""
        unknown = {name: f"<{name}>" for name in BLANKS}
        quoted = {name: shlex.quote(value) for name, value in self.blanks.items()}
        parts = self.cause.remedy.split("`")
        return [
            part.format_map(unknown | (quoted if index % 2 else dict(self.blanks)))
            for index, part in enumerate(parts)
        ]

    @property
    def remedy(self) -> str:
        """The advice as one text."""
        return "".join(self.advice)

    def to_document(self) -> dict[str, Any]:
        """The document for --json."""
        return {
            "code": self.cause.code,
            "title": self.cause.title,
            "effect": self.cause.effect.value,
            "stages": list(self.cause.stages),
            "where": self.where,
            "observed": self.observed,
            "lost_bytes": self.lost_bytes,
            "remedy": self.remedy,
            "commands": self.advice[1::2],
            "caveat": self.cause.caveat,
        }


def _parse_text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise OpwatchError(f"{where}: {key} is missing, empty or not a string")
    return value


def _parse_choices(table: Mapping[str, Any], key: str, known: tuple[str, ...], where: str) -> tuple[str, ...]:
    values = table.get(key)
    if not isinstance(values, list) or not all(value in known for value in values):
        raise OpwatchError(f"{where}: {key} must be a list with values from {', '.join(known)}")
    return tuple(values)


def _parse_cause(table: Mapping[str, Any], where: str) -> Cause:
    unknown = table.keys() - set(Cause.__match_args__)
    if unknown:
        raise OpwatchError(f"{where}: unknown key {min(unknown)!r}")
    number, effect, proof = table.get("number"), table.get("effect"), table.get("proof")
    if type(number) is not int:
        raise OpwatchError(f"{where}: number must be an integer")
    if str(effect) not in list(Effect) or str(proof) not in PROOFS:
        raise OpwatchError(f"{where}: unknown effect or proof (see the comment at the top of the file)")
    remedy = _parse_text(table, "remedy", where)
    blanks = set(re.findall(r"\{(.*?)\}", remedy))
    if not blanks <= set(BLANKS):
        raise OpwatchError(f"{where}: unknown name in the remedy (known: {', '.join(BLANKS)})")
    return Cause(
        code=_parse_text(table, "code", where),
        number=number,
        title=_parse_text(table, "title", where),
        layer=_parse_text(table, "layer", where),
        stages=_parse_choices(table, "stages", STAGES, where),
        effect=Effect(str(effect)),
        seen_by=_parse_choices(table, "seen_by", SEEN_BY, where),
        recognised=_parse_text(table, "recognised", where),
        remedy=remedy,
        proof=str(proof),
        evidence=_parse_text(table, "evidence", where),
        kernels=_parse_text(table, "kernels", where),
        caveat=_parse_text(table, "caveat", where) if "caveat" in table else None,
    )


def _parse_table(text: str, where: str) -> dict[str, Any]:
    """Parse a TOML table with one `key = value` per line, where each value is also valid JSON. The json
    module is imported already; importing tomllib takes long."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    try:
        table = {key: json.loads(value) for key, value in (line.split(" = ", 1) for line in lines)}
    except (ValueError, RecursionError) as error:
        raise OpwatchError(f"{where}: {error}") from error
    if len(table) < len(lines):
        raise OpwatchError(f"{where}: duplicate key in a table")
    return table


def parse_causes(text: str, where: str) -> dict[str, Cause]:
    """Return the causes in a catalogue's text by code, in file order. Raise OpwatchError if the text is not a
    catalogue. Pure."""
    _, *texts = f"\n{text}".split(_TABLE)
    if not texts:
        raise OpwatchError(f"{where}: no [[cause]] found")
    by_code: dict[str, Cause] = {}
    for index, text_of_one in enumerate(texts):
        table = _parse_table(text_of_one, where)
        cause = _parse_cause(table, f"{where}: {table.get('code', f'cause {index + 1}')}")
        if cause.code in by_code:
            raise OpwatchError(f"{where}: duplicate code {cause.code}")
        by_code[cause.code] = cause
    return by_code


@functools.cache
def load_causes() -> Mapping[str, Cause]:
    """The packaged catalogue by code."""
    return {code: _load_cause(code) for code in _read_tables()}


@functools.cache
def _read_tables() -> Mapping[str, str]:
    """Return the text of each cause's table by code."""
    _, *tables = PACKAGED.read_text(encoding="utf-8").split(_TABLE)
    return {code: table for table in tables for code in _CODE.findall(table)}


@functools.cache
def _load_cause(code: str) -> Cause:
    """Return one packaged cause. Parsing the whole catalogue takes longer than the rest of a check, and few
    causes are ever needed."""
    return parse_causes(_TABLE + _read_tables()[code], str(PACKAGED))[code]


def make_reason(
    code: str, where: str, observed: str, lost_bytes: int | None = None, /, **blanks: str
) -> Reason:
    """Return a finding of the cause `code`. `blanks` fill the names in the remedy: device, mount, label,
    ..."""
    unknown = blanks.keys() - set(BLANKS)
    if unknown:
        raise ValueError(f"no remedy has a blank {min(unknown)}")
    return Reason(_load_cause(code), where, observed, lost_bytes, blanks)
