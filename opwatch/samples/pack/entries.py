"""An entry of a run as a document with parts, and back: what was read back is what was written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from opwatch import SCHEMA
from opwatch.fields import Fields
from opwatch.foreign import parse_json, table_of
from opwatch.samples.entries import Began, Ended, Left, Looked, NotWatched, RunEntry, Ticked
from opwatch.samples.observation import Arrival, Event, Leaving
from opwatch.samples.pack.discards import discards_document, discards_of
from opwatch.samples.pack.firmware import firmware_document, firmware_of
from opwatch.samples.pack.parts import Parts, part_of
from opwatch.samples.sample import DiskSample
from opwatch.samples.written import from_bytes, to_bytes
from opwatch.trim.audit.live import DiscardSample

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PackedEntry:
    """A line of JSON, and the bytes that it refers to by number: samples of disks, pages of drives."""

    head: bytes
    parts: tuple[bytes, ...]


def pack(entry: RunEntry) -> PackedEntry:
    """An entry to be written. A page that is the same as in another entry is the same part there."""
    parts = Parts()
    kind, write = _WRITERS[type(entry)]
    head = {"schema": SCHEMA, "type": kind, **write(entry, parts)}
    return PackedEntry(json.dumps(head).encode(), tuple(parts.parts))


def unpack(packed: PackedEntry, where: str) -> RunEntry:
    """The entry that was packed. BadInput, with the place, for whatever is none."""
    fields = Fields(table_of(parse_json(packed.head, where), where), where)
    kind = fields.table.get("type")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if fields.table.get("schema") != SCHEMA or read is None:
        raise fields.bad(f"this is no entry of {SCHEMA}")
    return read(fields, packed.parts)


def _began_document(entry: Began, parts: Parts) -> dict[str, Any]:
    return {
        "place": entry.place,
        "sample": parts.add(to_bytes(entry.sample)),
        "drive": entry.drive,
        "discards": _discards_or_none(entry.discards),
        "arrival": None if entry.arrival is None else _arrival_document(entry.arrival),
        "text": entry.text,
    }


def _began(fields: Fields, parts: Sequence[bytes]) -> Began:
    return Began(
        place=fields.count("place"),
        sample=_sample(fields.table.get("sample"), fields, parts),
        drive=fields.optional("drive", fields.text),
        discards=fields.optional("discards", lambda key: discards_of(fields.sub(key))),
        arrival=fields.optional("arrival", lambda key: _arrival(fields.sub(key))),
        text=fields.text("text"),
    )


def _ticked_document(entry: Ticked, parts: Parts) -> dict[str, Any]:
    return {"samples": _sample_rows(entry.samples, parts), "discards": _discard_rows(entry.discards)}


def _ticked(fields: Fields, parts: Sequence[bytes]) -> Ticked:
    return Ticked(samples=_samples(fields, parts), discards=_all_discards(fields))


def _left_document(entry: Left, parts: Parts) -> dict[str, Any]:
    return {
        "place": entry.place,
        "sample": parts.add(to_bytes(entry.sample)),
        "leaving": _leaving_document(entry.leaving),
        "text": entry.text,
        "discards": _discards_or_none(entry.discards),
        "is_blind": entry.is_blind,
    }


def _left(fields: Fields, parts: Sequence[bytes]) -> Left:
    return Left(
        place=fields.count("place"),
        sample=_sample(fields.table.get("sample"), fields, parts),
        leaving=_leaving(fields.sub("leaving")),
        text=fields.text("text"),
        discards=fields.optional("discards", lambda key: discards_of(fields.sub(key))),
        is_blind=fields.flag("is_blind"),
    )


def _not_watched_document(entry: NotWatched, _: Parts) -> dict[str, Any]:
    event = entry.event
    return {
        "kind": event.kind,
        "device": event.device,
        "origin": event.origin,
        "at": event.at.isoformat(),
        "at_ns": event.at_ns,
        "text": event.text,
    }


def _not_watched(fields: Fields, _: Sequence[bytes]) -> NotWatched:
    event = Event(
        kind=fields.text("kind"),
        device=fields.text("device"),
        origin=fields.text("origin"),
        at=fields.moment("at"),
        at_ns=fields.count("at_ns"),
        text=fields.text("text"),
    )
    return NotWatched(event)


def _looked_document(entry: Looked, parts: Parts) -> dict[str, Any]:
    return {"look": firmware_document(entry.sample, parts)}


def _looked(fields: Fields, parts: Sequence[bytes]) -> Looked:
    return Looked(firmware_of(fields.sub("look"), parts))


def _ended_document(entry: Ended, parts: Parts) -> dict[str, Any]:
    return {
        "samples": _sample_rows(entry.samples, parts),
        "discards": _discard_rows(entry.discards),
        "leaving": [[place, _leaving_document(leaving)] for place, leaving in entry.leaving.items()],
        "with_rest": entry.with_rest,
        "is_blind": entry.is_blind,
    }


def _ended(fields: Fields, parts: Sequence[bytes]) -> Ended:
    return Ended(
        samples=_samples(fields, parts),
        discards=_all_discards(fields),
        leaving=_by_place(fields, "leaving", lambda value, inner: _leaving(_inner(value, inner))),
        with_rest=fields.flag("with_rest"),
        is_blind=fields.flag("is_blind"),
    )


_WRITERS: dict[type, tuple[str, Callable[[Any, Parts], dict[str, Any]]]] = {
    Began: ("began", _began_document),
    Ticked: ("ticked", _ticked_document),
    Left: ("left", _left_document),
    NotWatched: ("not_watched", _not_watched_document),
    Looked: ("looked", _looked_document),
    Ended: ("ended", _ended_document),
}
_READERS: dict[str, Callable[[Fields, Sequence[bytes]], RunEntry]] = {
    "began": _began,
    "ticked": _ticked,
    "left": _left,
    "not_watched": _not_watched,
    "looked": _looked,
    "ended": _ended,
}


def _sample_rows(samples: Mapping[int, DiskSample], parts: Parts) -> list[list[int]]:
    return [[place, parts.add(to_bytes(sample))] for place, sample in samples.items()]


def _discard_rows(discards: Mapping[int, DiscardSample]) -> list[list[Any]]:
    return [[place, discards_document(sample)] for place, sample in discards.items()]


def _discards_or_none(sample: DiscardSample | None) -> dict[str, Any] | None:
    return None if sample is None else discards_document(sample)


def _sample(value: object, fields: Fields, parts: Sequence[bytes]) -> DiskSample:
    return from_bytes(part_of(value, parts, fields, "sample"), fields.where)


def _samples(fields: Fields, parts: Sequence[bytes]) -> dict[int, DiskSample]:
    return _by_place(fields, "samples", lambda value, inner: _sample(value, inner, parts))


def _all_discards(fields: Fields) -> dict[int, DiscardSample]:
    return _by_place(fields, "discards", lambda value, inner: discards_of(_inner(value, inner)))


def _by_place(fields: Fields, key: str, read: Callable[[object, Fields], _T]) -> dict[int, _T]:
    """A list of pairs, of which each place has one."""
    values: dict[int, _T] = {}
    for number, value in fields.rows(key, 2):
        place = fields.count_of(number, key)
        if place in values:
            raise fields.bad(f"{key} has place {place} twice")
        values[place] = read(value, Fields(fields.table, f"{fields.where}: {key} of place {place}"))
    return values


def _inner(value: object, fields: Fields) -> Fields:
    return Fields(table_of(value, fields.where), fields.where)


def _arrival_document(arrival: Arrival) -> dict[str, Any]:
    return {**asdict(arrival), "at": arrival.at.isoformat()}


def _arrival(fields: Fields) -> Arrival:
    return Arrival(
        at=fields.moment("at"),
        at_ns=fields.count("at_ns"),
        since_ns=fields.count("since_ns"),
        unseen=fields.optional("unseen", fields.counts),
        unseen_bytes=fields.optional("unseen_bytes", fields.counts),
        reason=fields.optional("reason", fields.text),
        slack=fields.optional("slack", fields.counts),
        slack_bytes=fields.optional("slack_bytes", fields.counts),
    )


def _leaving_document(leaving: Leaving) -> dict[str, Any]:
    return {**asdict(leaving), "at": leaving.at.isoformat()}


def _leaving(fields: Fields) -> Leaving:
    return Leaving(
        at=fields.moment("at"),
        at_ns=fields.count("at_ns"),
        why=fields.text("why"),
        doubt=fields.optional("doubt", fields.text),
    )
