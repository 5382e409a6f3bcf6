"""Load the catalogue of drives from TOML files: the meaning and unit of each counter beyond the standards.

An entry applies only if all its conditions match. A malformed entry is an error.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from opwatch.counters.catalogue.fingerprints import UnitRules, load_packaged_rules
from opwatch.counters.decode.vendor_page import LAYOUTS
from opwatch.counters.reading import DriveFacts
from opwatch.errors import BadInput, UsageError
from opwatch.foreign import read_bytes
from opwatch.settings import parse_toml

PACKAGED = Path(__file__).parent
# Trim counters have a separate catalogue because a match here must not hide an entry for write counters.
TRIMS = PACKAGED / "trims"
SYSTEM = Path("/etc/opwatch/counters.d")
_MAX_UNIT = 1 << 40
# Lowest and highest credible ratio of `worn` to erases x capacity, unless an entry has its own.
_WORN_FIT = (0.7, 1.4)


@dataclass(frozen=True, slots=True)
class Counter:
    """Sum of attributes or items, times a unit.

    Several units: the unit that fits the host writes is used. `at_least`: the drive may have written more.
    """

    terms: tuple[str, ...]
    units: tuple[int, ...]
    quantum: int
    caveat: str | None = None
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """Catalogue entry for one kind of drive.

    Attribute ids in terms are text. `trimmed` counts trimmed blocks, `trims` counts trim commands (unit 1).
    `for_host`: NAND bytes programmed for host data. `worn`: NAND bytes that should match the erase counts.
    `page_ratio`: attributes that count host pages and drive pages of the same, unknown size. `by_attributes`:
    the model pattern is broad and the attributes select the drives, so a mismatch is not reported as a
    problem.
    """

    name: str
    protocol: str
    evidence: str
    drives: str
    model: re.Pattern[str] | None = None
    firmware: re.Pattern[str] | None = None
    not_firmware: re.Pattern[str] | None = None
    family: re.Pattern[str] | None = None
    vendor_id: int | None = None
    host: Counter | None = None
    nand: Counter | None = None
    trimmed: Counter | None = None
    trims: Counter | None = None
    for_host: Counter | None = None
    worn: Counter | None = None
    # Lowest and highest credible ratio of `worn` to erases x capacity.
    worn_fit: tuple[float, float] = _WORN_FIT
    page_ratio: tuple[int, ...] = ()
    # Field with the page's own NAND/host ratio. A match proves that both counters share the host counter's
    # unit.
    own_ratio: str | None = None
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    requires: tuple[int, ...] = ()
    forbids: tuple[int, ...] = ()
    equal: tuple[tuple[int, ...], ...] = ()
    sum_of: tuple[int, int, tuple[int, ...]] | None = None
    erase: tuple[str, ...] = ()
    lid: int | None = None
    layout: str | None = None
    fault: str | None = None
    no_nand: str | None = None
    below_host: bool = False
    statistics_wrap: bool = False
    tight: bool = False
    by_attributes: bool = False
    # The user wrote the entry, so learned rules do not overrule it.
    own: bool = False

    def matches_drive(self, drive: DriveFacts) -> bool:
        """Return whether the drive matches. Required fields that the drive does not report count as
        mismatches."""
        if drive.protocol and drive.protocol != self.protocol:
            return False
        if self.vendor_id is not None and drive.vendor_id not in (self.vendor_id, None):
            return False
        asked = ((self.model, drive.model), (self.firmware, drive.firmware), (self.family, drive.family))
        if any(pattern and not (text and pattern.fullmatch(text)) for pattern, text in asked):
            return False
        return not (self.not_firmware and drive.firmware and self.not_firmware.fullmatch(drive.firmware))


class Catalogue:
    """Catalogue entries, user entries first, and learned rules for drives outside the catalogue."""

    def __init__(self, entries: Iterable[Entry], rules: UnitRules | None = None) -> None:
        self.entries = tuple(entries)
        self._rules = rules

    @property
    def unit_rules(self) -> UnitRules:
        return load_packaged_rules() if self._rules is None else self._rules

    def find_entries(self, drive: DriveFacts, protocol: str) -> list[Entry]:
        """Return the entries for this drive, in file order."""
        return [entry for entry in self.entries if entry.protocol == protocol and entry.matches_drive(drive)]


class _TomlTable:
    """TOML table whose keys are taken one by one. Keys left over at the end are an error."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values = dict(values)
        self._where = where

    def make_error(self, key: str, wanted: str) -> UsageError:
        return UsageError(f"{self._where}: {key} must be {wanted}")

    def take_value(self, key: str, kind: type, wanted: str) -> Any:  # noqa: ANN401
        value = self._values.pop(key, None)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise self.make_error(key, wanted)
        return value

    def take_text(self, key: str, *, needed: bool = False) -> str | None:
        value: str | None = self.take_value(key, str, "a string")
        if needed and not value:
            raise self.make_error(key, "a string that is not empty")
        return value

    def take_number(self, key: str, most: int) -> int | None:
        value: int | None = self.take_value(key, int, "a number")
        if value is not None and not 0 <= value <= most:
            raise self.make_error(key, f"a number from 0 to {most}")
        return value

    def take_pattern(self, key: str) -> re.Pattern[str] | None:
        value = self.take_text(key)
        try:
            with warnings.catch_warnings(action="ignore"):
                return re.compile(value) if value is not None else None
        except (re.error, OverflowError, RecursionError) as error:
            raise self.make_error(key, f"a regular expression ({error})") from error

    def take_ids(self, key: str) -> tuple[int, ...]:
        values = self.take_value(key, list, "a list of numbers") or []
        if not all(type(value) is int and 0 < value < 256 for value in values):
            raise self.make_error(key, "a list of numbers from 1 to 255")
        return tuple(values)

    def take_terms(self, key: str) -> tuple[str, ...]:
        values = self.take_value(key, list, "a list") or []
        if not all(isinstance(value, str) or type(value) is int for value in values):
            raise self.make_error(key, "a list of numbers or strings")
        return tuple(str(value) for value in values)

    def take_table(self, key: str) -> _TomlTable | None:
        value = self.take_value(key, dict, "a table")
        return _TomlTable(value, f"{self._where}.{key}") if value is not None else None

    def reject_unknown(self) -> None:
        if self._values:
            raise UsageError(f"{self._where}: unknown key {sorted(self._values)[0]!r}")

    def take_rest(self) -> dict[str, Any]:
        values, self._values = self._values, {}
        return values


def _parse_fit(table: _TomlTable) -> tuple[float, float] | None:
    """Return the lowest and highest allowed ratio, or None if the entry has none."""
    fit = table.take_value("worn_fit", list, "a list of two numbers")
    if fit is None:
        return None
    if len(fit) != 2 or not all(type(bound) is float for bound in fit) or not 0 < fit[0] < fit[1]:
        raise table.make_error("worn_fit", "two increasing numbers above 0, e.g. [0.9, 1.2]")
    return fit[0], fit[1]


def _parse_counter(table: _TomlTable | None) -> Counter | None:
    if table is None:
        return None
    unit = table.take_value("unit", int, "a number of bytes")
    units = table.take_value("units", list, "a list of sizes in bytes")
    sizes = tuple(units) if units else (unit,)
    if any(type(size) is not int or not 1 <= size <= _MAX_UNIT for size in sizes):
        raise table.make_error("unit", f"a number of bytes from 1 to {_MAX_UNIT}")
    terms = table.take_terms("of")
    if not terms:
        raise table.make_error("of", "a list of the attributes or items to add up")
    quantum = table.take_value("quantum", int, "a number of bytes")
    quantum = min(sizes) if quantum is None else quantum
    if not 1 <= quantum <= _MAX_UNIT:
        raise table.make_error("quantum", f"a number of bytes from 1 to {_MAX_UNIT}")
    at_least = bool(table.take_value("at_least", bool, "true or false"))
    counter = Counter(terms, sizes, quantum, table.take_text("caveat"), at_least)
    table.reject_unknown()
    return counter


def _parse_names(table: _TomlTable | None) -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {}
    for key, value in (table.take_rest() if table else {}).items():
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise UsageError(f"names.{key} must be a list of strings")
        names[key] = tuple(value)
    return names


def _parse_sum(table: _TomlTable | None) -> tuple[int, int, tuple[int, ...]] | None:
    if table is None:
        return None
    total, factor = table.take_value("id", int, "a number"), table.take_value("factor", int, "a number")
    ids = table.take_ids("ids")
    if not total or not factor or not ids or not 0 < total < 256 or not 0 < factor <= _MAX_UNIT:
        raise table.make_error("id, factor, ids", "present and in range")
    table.reject_unknown()
    return total, factor, ids


def _parse_equal_groups(table: _TomlTable) -> tuple[tuple[int, ...], ...]:
    """Return the groups of attributes that must be equal."""
    groups = table.take_value("equal", list, "a list of lists") or []
    if not all(isinstance(group, list) and all(type(term) is int for term in group) for group in groups):
        raise table.make_error("equal", "a list of lists of numbers")
    return tuple(tuple(group) for group in groups)


# Keys of counters and keys of booleans in an entry.
_COUNTERS = ("host", "nand", "trimmed", "trims", "for_host", "worn")
_FLAGS = ("below_host", "tight", "by_attributes", "statistics_wrap")


def _parse_counters_and_flags(table: _TomlTable) -> dict[str, Any]:
    counters = {name: _parse_counter(table.take_table(name)) for name in _COUNTERS}
    return counters | {name: bool(table.take_value(name, bool, "true or false")) for name in _FLAGS}


def _parse_entry(values: Mapping[str, Any], protocol: str, where: str) -> Entry:
    table = _TomlTable(values, where)
    layout = table.take_text("layout")
    if layout is not None and layout not in LAYOUTS:
        raise table.make_error("layout", f"one of {', '.join(LAYOUTS)}")
    entry = Entry(
        name=table.take_text("name", needed=True) or "",
        protocol=protocol,
        evidence=table.take_text("evidence", needed=True) or "",
        drives=table.take_text("drives", needed=True) or "",
        model=table.take_pattern("model"),
        firmware=table.take_pattern("firmware"),
        not_firmware=table.take_pattern("not_firmware"),
        family=table.take_pattern("family"),
        vendor_id=table.take_number("vendor_id", 0xFFFF),
        **_parse_counters_and_flags(table),
        worn_fit=_parse_fit(table) or _WORN_FIT,
        page_ratio=table.take_ids("page_ratio"),
        own_ratio=table.take_text("own_ratio"),
        names=_parse_names(table.take_table("names")),
        requires=table.take_ids("requires"),
        forbids=table.take_ids("forbids"),
        equal=_parse_equal_groups(table),
        sum_of=_parse_sum(table.take_table("sum_of")),
        erase=table.take_terms("erase"),
        lid=table.take_number("lid", 0xFF),
        layout=layout,
        fault=table.take_text("fault"),
        no_nand=table.take_text("no_nand"),
    )
    table.reject_unknown()
    _require_fields(table, entry)
    return entry


def _require_fields(table: _TomlTable, entry: Entry) -> None:
    """Check that the entry has all required fields."""
    if entry.model is None and entry.family is None and entry.firmware is None:
        raise table.make_error("model, family or firmware", "present")
    counters = (entry.host, entry.nand, entry.trimmed, entry.trims)
    if entry.protocol == "ata":
        _require_attributes(table, (*counters, entry.for_host, entry.worn), entry.erase)
        if len(entry.page_ratio) not in (0, 2):
            raise table.make_error(
                "page_ratio", "two attributes: pages for the host, and pages for the drive itself"
            )
    if entry.protocol == "nvme" and any(counters) and not entry.fault and not (entry.lid and entry.layout):
        raise table.make_error("lid and layout", "present: they identify the page")


def _require_attributes(
    table: _TomlTable, counters: Iterable[Counter | None], erase: tuple[str, ...]
) -> None:
    """Check that the terms of an ATA entry are attribute numbers."""
    for term in (*(term for counter in counters if counter for term in counter.terms), *erase):
        if not re.fullmatch("[0-9]{1,3}", term) or not 0 < int(term) < 256:
            raise table.make_error("of and erase", f"numbers from 1 to 255, not {term!r:.40}")


def parse_catalogue(text: str, where: str) -> list[Entry]:
    """Return the entries in the text of a catalogue file, or raise UsageError if it is malformed."""
    return _parse_entries(text.encode("utf-8", "replace"), where)


def _parse_entries(raw: bytes, where: str) -> list[Entry]:
    try:
        document = parse_toml(raw, where)
    except BadInput as error:
        raise UsageError(str(error)) from error
    entries: list[Entry] = []
    for protocol, tables in document.items():
        if protocol not in ("ata", "nvme") or not isinstance(tables, list):
            raise UsageError(f"{where}: unknown kind of drive {protocol!r}; use [[ata]] or [[nvme]]")
        for index, table in enumerate(tables):
            if not isinstance(table, dict):
                raise UsageError(f"{where}: {protocol} must be tables: use [[{protocol}]]")
            name = table.get("name", f"entry {index + 1}")
            entries.append(_parse_entry(table, protocol, f"{where}: {protocol} {name}"))
    return entries


def _read_catalogue(path: Path) -> list[Entry]:
    try:
        return _parse_entries(read_bytes(path), str(path))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except BadInput as error:
        raise UsageError(str(error)) from error


def load_catalogue(extra: Iterable[Path] = (), system: Path = SYSTEM) -> Catalogue:
    """Load the files given by the user, then the files of this machine, then the packaged files."""
    folders = [sorted(folder.glob("*.toml")) for folder in (system, PACKAGED)]
    own = [replace(entry, own=True) for path in (*extra, *folders[0]) for entry in _read_catalogue(path)]
    return Catalogue((*own, *(entry for path in folders[1] for entry in _read_catalogue(path))))


@cache
def load_standard_catalogue() -> Catalogue:
    """Return the catalogue without user files. Loaded once."""
    return load_catalogue()


def load_trims() -> Catalogue:
    """Load the catalogue of drives that count trims."""
    return Catalogue(entry for path in sorted(TRIMS.glob("*.toml")) for entry in _read_catalogue(path))
