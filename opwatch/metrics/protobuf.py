"""Prometheus protobuf: delimited messages `io.prometheus.client.MetricFamily`, written field by field.

A histogram has native buckets and classic buckets in one message, and the server stores those it is
configured for."""

from __future__ import annotations

import struct

from opwatch.metrics.buckets import (
    CLASSIC_BOUNDS,
    NATIVE_SCHEMA,
    ZERO_THRESHOLD_S,
    accumulate_classic,
    count_native,
)
from opwatch.metrics.family import (
    DurationCounts,
    LabelValues,
    MetricFamily,
    MetricKind,
    MetricRow,
    MetricSamples,
)
from opwatch.metrics.label_text import clean_label
from opwatch.metrics.table import FAMILIES

_DOUBLE = struct.Struct("<d")
# MetricType in metrics.proto, and the field of a Metric with the value.
_TYPES = {MetricKind.COUNTER: 0, MetricKind.GAUGE: 1, MetricKind.HISTOGRAM: 4}
_VALUE_TAGS = {MetricKind.COUNTER: b"\x1a\x09\x09", MetricKind.GAUGE: b"\x12\x09\x09"}
# Native buckets with at most this many empty ones between them share a span.
_MAX_GAP = 2
_BYTES = tuple(bytes((value,)) for value in range(0x80))
# The signed values that take one byte; a negative index counts from the end.
_SMALL = (*_BYTES[0::2], *_BYTES[:0:-2])


def _encode_varint(value: int) -> bytes:
    if value < 0x80:
        return _BYTES[value]
    if value < 0x4000:
        return b"%c%c" % (value & 0x7F | 0x80, value >> 7)
    if value < 0x200000:
        return b"%c%c%c" % (value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14)
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _encode_signed(value: int) -> bytes:
    if -0x40 <= value < 0x40:
        return _SMALL[value]
    return _encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _encode_block(tag: int, content: bytes) -> bytes:
    """Return a length-delimited field with a number below 16."""
    return b"%c%b%b" % (tag << 3 | 2, _encode_varint(len(content)), content)


def _encode_labels(family: MetricFamily, values: LabelValues) -> bytes:
    pairs = (
        _encode_block(1, name.encode()) + _encode_block(2, clean_label(value).encode())
        for name, value in zip(family.labels, values, strict=True)
    )
    return b"".join(_encode_block(1, pair) for pair in pairs)


def _encode_head(family: MetricFamily) -> bytes:
    unit = _encode_block(5, family.unit.encode()) if family.unit else b""
    return (
        _encode_block(1, family.name.encode())
        + _encode_block(2, family.help.encode())
        + bytes((0x18, _TYPES[family.kind]))
        + unit
    )


# The bound of each classic bucket, with the field's tag.
_BOUNDS = tuple(b"\x11" + _DOUBLE.pack(bound) for bound in CLASSIC_BOUNDS)
_NATIVE_HEAD = b"\x28" + _encode_signed(NATIVE_SCHEMA) + b"\x31" + _DOUBLE.pack(ZERO_THRESHOLD_S)


def _encode_classic(counts: DurationCounts) -> bytes:
    parts = []
    # Buckets without durations of their own repeat the count of the bucket before.
    before, head = 0, b"\x1a\x09"
    for count, bound in zip(accumulate_classic(counts), _BOUNDS, strict=True):
        if count != before:
            encoded = _encode_varint(count)
            before, head = count, b"\x1a%c\x08%b" % (10 + len(encoded), encoded)
        parts.append(head)
        parts.append(bound)
    return b"".join(parts)


def _encode_native(counts: DurationCounts) -> bytes:
    zero, buckets = count_native(counts)
    # The difference of each bucket from the one before, and spans of (gap before, length).
    deltas: list[int] = []
    spans: list[tuple[int, int]] = []
    following = before = length = offset = 0
    for index, count in buckets:
        gap = index - following
        if gap and length and gap <= _MAX_GAP:
            deltas += (-before, *(0,) * (gap - 1))
            before, length = 0, length + gap
        elif gap:
            if length:
                spans.append((offset, length))
            offset, length = gap, 0
        deltas.append(count - before)
        before, following, length = count, index + 1, length + 1
    if length:
        spans.append((offset, length))
    parts = [_NATIVE_HEAD]
    if zero:
        parts.append(b"\x38" + _encode_varint(zero))
    for offset, length in spans:
        parts.append(_encode_block(12, b"\x08" + _encode_signed(offset) + b"\x10" + _encode_varint(length)))
    if deltas:
        parts.append(_encode_block(13, b"".join(map(_encode_signed, deltas))))
    return b"".join(parts)


def _encode_histogram(counts: DurationCounts, *, with_classic_buckets: bool) -> bytes:
    """Return the value of a Metric. Without known buckets, only the number and the sum are encoded."""
    parts = [b"\x08" + _encode_varint(counts.total), b"\x11" + _DOUBLE.pack(counts.sum_s)]
    if counts.has_buckets:
        if with_classic_buckets:
            parts.append(_encode_classic(counts))
        parts.append(_encode_native(counts))
    return _encode_block(7, b"".join(parts))


class _ProtobufFamily:
    """The encoded metrics of a family's previous answer, by label values."""

    __slots__ = ("family", "head", "known", "tag")

    def __init__(self, family: MetricFamily) -> None:
        self.family = family
        self.head = _encode_head(family)
        self.tag = _VALUE_TAGS.get(family.kind, b"")
        # The labels, the value or what identifies it, and the whole metric.
        self.known: dict[LabelValues, tuple[bytes, object, bytes]] = {}

    def encode_rows(self, rows: list[MetricRow], *, with_classic_buckets: bool) -> bytes:
        """Return the delimited message. Of rows with equal labels, the first counts."""
        known, self.known = self.known, {}
        parts = [self.head]
        for labels, value in rows:
            if labels in self.known:
                continue
            prefix, before, encoded = known.get(labels) or (_encode_labels(self.family, labels), None, b"")
            if isinstance(value, DurationCounts):
                # Counters only grow: with an equal number and sum, nothing changed.
                now: object = value.total, value.sum_s, with_classic_buckets
                if now != before:
                    content = _encode_histogram(value, with_classic_buckets=with_classic_buckets)
                    encoded = _encode_block(4, prefix + content)
            else:
                now = value
                if now != before:
                    encoded = _encode_block(4, prefix + self.tag + _DOUBLE.pack(value))
            self.known[labels] = prefix, now, encoded
            parts.append(encoded)
        message = b"".join(parts)
        return _encode_varint(len(message)) + message


class ProtobufEncoder:
    """Encodes one answer after the other."""

    def __init__(self) -> None:
        self._families = [_ProtobufFamily(family) for family in FAMILIES]

    def encode(self, samples: MetricSamples, *, with_classic_buckets: bool = True) -> bytes:
        """Return the answer."""
        return b"".join(
            encoded.encode_rows(rows, with_classic_buckets=with_classic_buckets)
            for encoded in self._families
            if (rows := samples.rows.get(encoded.family.name))
        )
