"""Read drives from JSON rows with identity, attributes and device statistics."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from opwatch.counters.evidence import Attribute, Evidence, Statistics
from opwatch.counters.reading import DriveFacts
from opwatch.counters.reports.numbers import parse_integer, parse_json_number

_WHERE = re.compile(r"([0-9a-f]{2}):([0-9a-f]{3})")
_HOURS = re.compile(r"([0-9]{1,9})(?:h[+ ]|\s|$)")


def _parse_statistics(values: Mapping[str, Any]) -> Statistics | None:
    numbers: dict[tuple[int, int], int] = {}
    for where, value in values.items():
        place, number = _WHERE.fullmatch(where), parse_json_number(value)
        if place and number is not None:
            numbers[int(place[1], 16), int(place[2], 16)] = number
    return Statistics(numbers) if numbers else None


def make_evidence(row: Mapping[str, Any]) -> Evidence:
    """Return the drive of a row in the form of a smartctl report."""
    attributes = tuple(
        Attribute(int(number), name, parse_integer(raw), raw, value)
        for number, (name, value, raw) in row["attributes"].items()
    )
    hours = next((_HOURS.match(attribute.text) for attribute in attributes if attribute.id == 9), None)
    drive = DriveFacts(
        protocol="ata",
        model=row["model"],
        firmware=row["firmware"],
        family=row["family"],
        capacity_bytes=parse_json_number(row["bytes"]) or None,
        lba_bytes=512,
        rotational=False,
    )
    return Evidence(
        drive=drive,
        attributes=attributes,
        statistics=_parse_statistics(row["statistics"]),
        power_on_hours=int(hours[1]) if hours else None,
    )


def drop_statistics(evidence: Evidence) -> Evidence:
    """Return the drive without device statistics."""
    return replace(evidence, statistics=None)


def read_rows(path: Path) -> Iterator[Evidence]:
    """Yield the drives of a file, optionally gzipped, or of all such files in a folder."""
    if path.is_dir():
        for part in sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")]):
            yield from read_rows(part)
        return
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        for line in file:
            yield make_evidence(json.loads(line))
