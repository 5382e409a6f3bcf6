"""Encode the clocks and CPU times shared by all disks of a reading, as differences to the last reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from opwatch.clock import Anchor
from opwatch.cpu import CpuTimes
from opwatch.recording.coding.columns import Changes, iterate_rows, pack_columns, unpack_columns
from opwatch.recording.coding.times import ChangeReader, round_to_ms
from opwatch.recording.coding.varints import MODULUS, Varints, put_change

_MASK = MODULUS - 1
# Kinds of CPU time.
_TIMES = 4
# Entry number, monotonic clock, wall minus monotonic clock, slack, number of online CPUs, and their times.
ANCHOR_WIDTH = 5 + _TIMES
# The maximum number of entries in a block, each with at most one row.
_MAX_ROWS = (1 << 14) + 512


@dataclass(frozen=True, slots=True)
class SharedClocks:
    """Clocks and CPU times by entry. `cpus` has no entries with unknown CPU times."""

    anchors: Mapping[int, Anchor] = field(default_factory=dict)
    cpus: Mapping[int, CpuTimes] = field(default_factory=dict)


class AnchorWriter:
    """Encodes anchors. The first anchor of a new or reset writer is encoded in full."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._number = self._mono_ns = self._offset_ns = self._step_ns = 0
        self._times = [0] * _TIMES

    def encode_changes(self, number: int, anchor: Anchor, cpu: CpuTimes | None = None) -> bytes:
        """Return the changes since the previous anchor; `number` is the entry's."""
        out = bytearray()
        offset_ns = (anchor.wall_ns - anchor.mono_ns) & _MASK
        step_ns = anchor.mono_ns - self._mono_ns
        put_change(out, number - self._number)
        put_change(out, step_ns - round_to_ms(self._step_ns))
        put_change(out, offset_ns - self._offset_ns)
        put_change(out, anchor.slack_ns)
        self._step_ns = step_ns if self._mono_ns else 0
        self._number, self._mono_ns, self._offset_ns = number, anchor.mono_ns, offset_ns
        # Zero CPUs means unknown times; the stored times then do not change.
        put_change(out, cpu.cpus if cpu else 0)
        times = [cpu.user, cpu.system, cpu.irq, cpu.steal] if cpu else self._times
        for before, now in zip(self._times, times, strict=True):
            put_change(out, now - before)
        self._times = times
        return bytes(out)


def encode_anchors(rows: Sequence[bytes]) -> bytes:
    """Encode the anchors of a block: the complete first anchor as is, the others in columns."""
    return rows[0] + pack_columns(b"".join(rows[1:]), ANCHOR_WIDTH) if rows else b""


def decode_anchors(raw: bytes, where: str) -> SharedClocks:
    """Decode the output of encode_anchors()."""
    if not raw:
        return SharedClocks()
    numbers = Varints(raw, where)
    first = [numbers.read_change() for _ in range(ANCHOR_WIDTH)]
    others = iterate_rows(unpack_columns(raw[numbers.bytes_read :], ANCHOR_WIDTH, _MAX_ROWS, where))
    return read_anchors(Changes(chain(first, others), where))


def read_anchors(changes: ChangeReader) -> SharedClocks:
    """Decode all anchors after a reset."""
    anchors, cpus = {}, {}
    number = mono_ns = offset_ns = step_ns = 0
    times = [0] * _TIMES
    while not changes.is_at_end:
        number = (number + changes.read_change()) & _MASK
        now_ns = (mono_ns + changes.read_change() + round_to_ms(step_ns)) & _MASK
        step_ns, mono_ns = now_ns - mono_ns if mono_ns else 0, now_ns
        offset_ns = (offset_ns + changes.read_change()) & _MASK
        anchors[number] = Anchor(mono_ns, (mono_ns + offset_ns) & _MASK, changes.read_change() & _MASK)
        online = changes.read_change() & _MASK
        times = [(before + changes.read_change()) & _MASK for before in times]
        if online:
            cpus[number] = CpuTimes(online, *times)
    return SharedClocks(anchors, cpus)
