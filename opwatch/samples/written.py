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

from opwatch import SCHEMA
from opwatch.clock import Anchor
from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.foreign import inflated, parse_json, table_of
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
    text, _, words = inflated(raw, MOST_BYTES, where).partition(b"\n")
    head = Fields(table_of(parse_json(text, where), where), where)
    if (head.table.get("schema"), head.table.get("type")) != (SCHEMA, TYPE):
        raise BadInput(f"{where} is no sample of {SCHEMA}")
    reading = Reading(
        sample=_counters(head, words),
        before=head.optional("before", lambda key: _stat(head.sub(key))),
        after=head.optional("after", lambda key: _stat(head.sub(key))),
        no_witness=head.optional("no_witness", head.text),
    )
    return DiskSample(
        disk=_disk(head.sub("disk")),
        reading=reading,
        misses=head.optional("misses", head.count),
        anchor=_anchor(head.sub("anchor")),
    )


def _counters(head: Fields, words: bytes) -> TargetSample:
    ops, counters = (_names(head, key) for key in ("ops", "counters"))
    slots = head.table.get("slots")
    if slots != list(SLOTS):
        raise head.bad(f"its histograms have {slots} slots, not {list(SLOTS)}")
    return counters_by_name(ops, counters, words, head.where)


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


def _names(head: Fields, key: str) -> list[str]:
    names = head.table.get(key)
    if not isinstance(names, list) or len(names) > _MOST_COUNTERS or len(set(map(str, names))) != len(names):
        raise head.bad(f"{key} is no list of names")
    return [str(name) for name in names]


def _stat(fields: Fields) -> StatSample:
    return StatSample(
        begin_ns=fields.count("begin_ns"),
        end_ns=fields.count("end_ns"),
        requests=fields.counts("requests"),
        bytes=fields.counts("bytes"),
        in_flight=fields.count("in_flight"),
    )


def _disk(fields: Fields) -> WatchedDisk:
    return WatchedDisk(
        device=fields.text("device"),
        origin=fields.text("origin"),
        level=fields.text("level"),
        backend=fields.text("backend"),
        lacks=fields.texts("lacks"),
        in_flight=fields.count("in_flight"),
        flush_queues=fields.count("flush_queues"),
    )


def _anchor(fields: Fields) -> Anchor:
    return Anchor(*map(fields.count, ("mono_ns", "wall_ns", "slack_ns")))
