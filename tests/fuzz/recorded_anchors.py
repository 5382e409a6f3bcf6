"""Modify the clock and CPU time columns of a recorded minute."""

from __future__ import annotations

import random

from opwatch.errors import OpwatchError
from opwatch.recording.coding.anchors import ANCHOR_WIDTH
from opwatch.recording.coding.columns import iterate_rows, pack_columns, unpack_columns
from opwatch.recording.coding.varints import Varints, put_change

_CHANGES = (-1, 0, 1, 2, 255, 1 << 16, 1 << 31, 1 << 32, (1 << 63) - 1, -(1 << 63))
_MAX_ROWS = 1 << 12


def change_anchors(chance: random.Random, raw: bytes) -> bytes | None:
    """Return the rows with some modified values, or None if undecodable."""
    try:
        numbers = Varints(raw, "it")
        first = [numbers.read_change() for _ in range(ANCHOR_WIDTH)]
        others = [*iterate_rows(unpack_columns(raw[numbers.bytes_read :], ANCHOR_WIDTH, _MAX_ROWS, "it"))]
    except OpwatchError:
        return None
    for _ in range(chance.randrange(1, 4)):
        values = chance.choice((first, others)) if others else first
        values[chance.randrange(len(values))] = chance.choice(_CHANGES)
    return _encode_changes(first) + pack_columns(_encode_changes(others), ANCHOR_WIDTH)


def _encode_changes(changes: list[int]) -> bytes:
    out = bytearray()
    for change in changes:
        put_change(out, change)
    return bytes(out)
