"""A sample as bytes, and back: what was read is what was written, to the last slot.

A line of JSON has the facts, the kernel's statistics, and which counters of which operations follow; then
come the counters as 64-bit words in that order. All of it is compressed, for nearly all slots are empty. What
a later version counts besides is 0 in a sample of an earlier one; what it no longer counts is passed over.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from opwatch import SCHEMA
from opwatch.clock import Anchor
from opwatch.errors import BadInput
from opwatch.foreign import parse_json, table_of
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.abi import OPS, SCALARS, SLOTS, TargetSample, decode_sample, encode_sample
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading

TYPE = "sample"
# A sample has 17,000 words; a later one may have more.
MOST_BYTES = 1 << 20
_MOST_COUNTERS = 1 << 10
_WORD = 8


def to_bytes(sample: DiskSample) -> bytes:
    reading = sample.reading
    head = {
        "schema": SCHEMA,
        "type": TYPE,
        "disk": asdict(sample.disk),
        "misses": sample.misses,
        "anchor": asdict(sample.anchor),
        "before": asdict(reading.before) if reading.before else None,
        "after": asdict(reading.after) if reading.after else None,
        "no_witness": reading.no_witness,
        "ops": list(OPS),
        "counters": list(SCALARS),
        "slots": list(SLOTS),
    }
    return zlib.compress(json.dumps(head).encode() + b"\n" + encode_sample(reading.sample), level=1)


def from_bytes(raw: bytes, where: str) -> DiskSample:
    """The sample that was written. BadInput, with the place, for whatever is none."""
    text, _, words = _expanded(raw, where).partition(b"\n")
    head = table_of(parse_json(text, where), where)
    if (head.get("schema"), head.get("type")) != (SCHEMA, TYPE):
        raise BadInput(f"{where} is no sample of {SCHEMA}")
    reading = Reading(
        sample=_counters(head, words, where),
        before=_stat(head, "before", where),
        after=_stat(head, "after", where),
        no_witness=_text_or_none(head, "no_witness", where),
    )
    return DiskSample(
        disk=_disk(_table(head, "disk", where), where),
        reading=reading,
        misses=None if head.get("misses") is None else _count(head, "misses", where),
        anchor=_anchor(_table(head, "anchor", where), where),
    )


def _expanded(raw: bytes, where: str) -> bytes:
    """The bytes behind the compression, within a bound: a few bytes can stand for very many."""
    expander = zlib.decompressobj()
    try:
        expanded = expander.decompress(raw, MOST_BYTES)
    except zlib.error as error:
        raise BadInput(f"{where} is damaged: {error}") from error
    if not expander.eof or expander.unused_data:
        raise BadInput(f"{where} is cut, or has more than {MOST_BYTES} bytes")
    return expanded


def _counters(head: dict[str, Any], words: bytes, where: str) -> TargetSample:
    ops, counters = (_names(head, key, where) for key in ("ops", "counters"))
    slots = head.get("slots")
    if slots != list(SLOTS):
        raise BadInput(f"{where}: its histograms have {slots} slots, not {list(SLOTS)}")
    return counters_by_name(ops, counters, words, where)


def counters_by_name(ops: Sequence[str], counters: Sequence[str], words: bytes, where: str) -> TargetSample:
    """By their names, so that a sample of another version is read as far as both know them."""
    width = len(counters) + sum(SLOTS)
    if len(words) != _WORD * (2 + len(ops) * width):
        raise BadInput(f"{where}: {len(words)} bytes of counters, for {len(ops)} operations of {width}")
    values = memoryview(words).cast("B").cast("Q")
    rows = {op: values[2 + at * width : 2 + (at + 1) * width] for at, op in enumerate(ops)}
    places = [counters.index(name) if name in counters else None for name in SCALARS]
    known = [*values[:2]]
    for op in OPS:
        row = rows.get(op)
        known += [row[place] if row is not None and place is not None else 0 for place in places]
        known += row[len(counters) :] if row is not None else [0] * sum(SLOTS)
    return decode_sample(struct.pack(f"={len(known)}Q", *known))


def _names(head: dict[str, Any], key: str, where: str) -> list[str]:
    names = head.get(key)
    if not isinstance(names, list) or len(names) > _MOST_COUNTERS or len(set(map(str, names))) != len(names):
        raise BadInput(f"{where}: {key} is no list of names")
    return [str(name) for name in names]


def _table(head: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    return table_of(head.get(key), f"{where}: {key}")


def _count(table: dict[str, Any], key: str, where: str) -> int:
    value = table.get(key)
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise BadInput(f"{where}: {key} is no count")
    return value


def _text(table: dict[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str):
        raise BadInput(f"{where}: {key} is no text")
    return value


def _text_or_none(table: dict[str, Any], key: str, where: str) -> str | None:
    return None if table.get(key) is None else _text(table, key, where)


def _counts(table: dict[str, Any], key: str, where: str) -> dict[str, int]:
    counts = _table(table, key, where)
    return {group: _count(counts, group, f"{where}: {key}") for group in counts}


def _stat(head: dict[str, Any], key: str, where: str) -> StatSample | None:
    if head.get(key) is None:
        return None
    table = _table(head, key, where)
    return StatSample(
        begin_ns=_count(table, "begin_ns", where),
        end_ns=_count(table, "end_ns", where),
        requests=_counts(table, "requests", where),
        bytes=_counts(table, "bytes", where),
        in_flight=_count(table, "in_flight", where),
    )


def _disk(table: dict[str, Any], where: str) -> WatchedDisk:
    lacks = table.get("lacks")
    if not isinstance(lacks, list) or not all(isinstance(sentence, str) for sentence in lacks):
        raise BadInput(f"{where}: lacks is no list of sentences")
    return WatchedDisk(
        device=_text(table, "device", where),
        origin=_text(table, "origin", where),
        level=_text(table, "level", where),
        backend=_text(table, "backend", where),
        lacks=tuple(lacks),
        in_flight=_count(table, "in_flight", where),
        flush_queues=_count(table, "flush_queues", where),
    )


def _anchor(table: dict[str, Any], where: str) -> Anchor:
    return Anchor(*(_count(table, key, where) for key in ("mono_ns", "wall_ns", "slack_ns")))
