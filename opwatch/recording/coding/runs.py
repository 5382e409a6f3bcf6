"""Runs of a disk's history: first sectors and ends in 8 bytes each, and then states in one byte each."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from opwatch.errors import BadInput
from opwatch.trim.history.saved import MAX_SECTOR
from opwatch.trim.history.sectormap import Run, SectorMap, SectorState

_SECTOR_BYTES, _RUN_BYTES = 8, 17
# Twice the runs of a disk in a single state, which has one run per part.
_MAX_PARTS = 1 << 14
_MAX_STATE = max(SectorState)


def encode_runs(runs: Sequence[Run]) -> bytes:
    starts, ends = array("Q", [run[0] for run in runs]), array("Q", [run[1] for run in runs])
    return b"".join([*map(_to_bytes, (starts, ends)), bytes([run[2] for run in runs])])


def _to_bytes(sectors: array[int]) -> bytes:
    if sys.byteorder == "big":
        sectors.byteswap()
    return sectors.tobytes()


def _from_bytes(raw: bytes) -> array[int]:
    sectors = array("Q", raw)
    if sys.byteorder == "big":
        sectors.byteswap()
    return sectors


class RunLoader:
    """Loads encoded runs into a map.

    Writers split runs at the map's parts. Runs that cover the disk repeatedly would take hours to load, and
    raise BadInput.
    """

    def __init__(self, map_: SectorMap) -> None:
        self._map = map_
        self._cost = self._runs = 0

    def load_runs(self, raw: bytes, where: str) -> None:
        """Set the states of encoded runs."""
        count, rest = divmod(len(raw), _RUN_BYTES)
        if rest:
            raise BadInput(f"{where}: {len(raw)} bytes are not a multiple of a run's {_RUN_BYTES}")
        size = count * _SECTOR_BYTES
        starts, ends, states = _from_bytes(raw[:size]), _from_bytes(raw[size : 2 * size]), raw[2 * size :]
        self._runs += count
        for start, end, state in zip(starts, ends, states, strict=True):
            if start >= end or end > MAX_SECTOR or state > _MAX_STATE:
                raise BadInput(f"{where}: invalid run {start}..{end} of state {state}")
            self._cost += self._map.count_parts(start, end)
            if self._cost > _MAX_PARTS + 4 * self._runs:
                raise BadInput(f"{where}: its runs cover the disk too many times")
            self._map.set_state(start, end, state)
