"""Anchors of a stretch: one for all disks that are read together, each as a difference to the one before."""

from __future__ import annotations

from opwatch.clock import Anchor
from opwatch.recording.coding.columns import Changes, packed, rows_of, unpacked
from opwatch.recording.coding.times import ChangeReader, rounded
from opwatch.recording.coding.varints import MODULUS, Varints, put_change

_MASK = MODULUS - 1
# Entry, monotonic clock, wall less monotonic clock, slack.
_WIDTH = 4
# A row takes no less of a stretch than its entry.
_MOST_ROWS = 1 << 16


class AnchorWriter:
    """A writer that has just been made, or reset, writes the next anchor whole."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._number = self._mono_ns = self._offset_ns = self._step_ns = 0

    def written(self, number: int, anchor: Anchor) -> bytes:
        """The changes since the anchor before; `number` is the entry's."""
        out = bytearray()
        offset_ns = (anchor.wall_ns - anchor.mono_ns) & _MASK
        step_ns = anchor.mono_ns - self._mono_ns
        put_change(out, number - self._number)
        put_change(out, step_ns - rounded(self._step_ns))
        put_change(out, offset_ns - self._offset_ns)
        put_change(out, anchor.slack_ns)
        self._step_ns = step_ns if self._mono_ns else 0
        self._number, self._mono_ns, self._offset_ns = number, anchor.mono_ns, offset_ns
        return bytes(out)


def packed_anchors(raw: bytes) -> bytes:
    """The anchors of a block, in columns."""
    return packed(raw, _WIDTH)


def unpacked_anchors(raw: bytes, where: str) -> dict[int, Anchor]:
    """The anchors of a block that packed_anchors() packed."""
    return read_anchors(Changes(rows_of(unpacked(raw, _WIDTH, _MOST_ROWS, where)), where))


def read_anchors(changes: ChangeReader) -> dict[int, Anchor]:
    """Anchors by entry: all that were written from a reset on."""
    anchors = {}
    number = mono_ns = offset_ns = step_ns = 0
    while not changes.is_at_end:
        number = (number + changes.change()) & _MASK
        now_ns = (mono_ns + changes.change() + rounded(step_ns)) & _MASK
        step_ns, mono_ns = now_ns - mono_ns if mono_ns else 0, now_ns
        offset_ns = (offset_ns + changes.change()) & _MASK
        anchors[number] = Anchor(mono_ns, (mono_ns + offset_ns) & _MASK, changes.change() & _MASK)
    return anchors


def read_first_anchors(raw: bytes, where: str) -> dict[int, Anchor]:
    """Anchors by entry, as version 1 of the format has them."""
    numbers, anchors = Varints(raw, where), {}
    number = mono_ns = offset_ns = 0
    while not numbers.is_at_end:
        number = (number + numbers.number()) & _MASK
        mono_ns = (mono_ns + numbers.change()) & _MASK
        offset_ns = (offset_ns + numbers.change()) & _MASK
        anchors[number] = Anchor(mono_ns, (mono_ns + offset_ns) & _MASK, numbers.number())
    return anchors
