"""Anchors of a stretch: one for all disks that are read together, each as a difference to the one before."""

from __future__ import annotations

from opwatch.clock import Anchor
from opwatch.recording.coding.varints import MODULUS, Varints, put, put_change

_MASK = MODULUS - 1


class AnchorWriter:
    """A writer that has just been made, or reset, writes the next anchor whole."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._number = self._mono_ns = self._offset_ns = 0

    def written(self, number: int, anchor: Anchor) -> bytes:
        """The difference to the anchor before; `number` is the entry's."""
        out = bytearray()
        offset_ns = (anchor.wall_ns - anchor.mono_ns) & _MASK
        put(out, (number - self._number) & _MASK)
        put_change(out, anchor.mono_ns - self._mono_ns)
        put_change(out, offset_ns - self._offset_ns)
        put(out, anchor.slack_ns)
        self._number, self._mono_ns, self._offset_ns = number, anchor.mono_ns, offset_ns
        return bytes(out)


def read_anchors(raw: bytes, where: str) -> dict[int, Anchor]:
    """All that were written from a reset on, by entry."""
    numbers, anchors = Varints(raw, where), {}
    number = mono_ns = offset_ns = 0
    while not numbers.is_at_end:
        number = (number + numbers.number()) & _MASK
        mono_ns = (mono_ns + numbers.change()) & _MASK
        offset_ns = (offset_ns + numbers.change()) & _MASK
        anchors[number] = Anchor(mono_ns, (mono_ns + offset_ns) & _MASK, numbers.number())
    return anchors
