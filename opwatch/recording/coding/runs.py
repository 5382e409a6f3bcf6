"""Runs of a disk's history.

A change has first sector, sector after the last, and state. A region has the first sectors of all its runs,
counted from its own first sector, and then their states.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence

from opwatch.errors import BadInput
from opwatch.trim.history.saved import MAX_SECTOR
from opwatch.trim.history.sectormap import Part, Run, SectorMap, SectorState

_RUN = struct.Struct("<QQB")
# Bytes of a run in a region: its start and its state.
_START, _REGION_RUN = 4, 5
# Twice the runs of a disk in a single state, which has one run per part.
_MAX_PARTS = 1 << 14
_MAX_STATE = max(SectorState)


def encode_runs(runs: Sequence[Run]) -> bytes:
    return b"".join([_RUN.pack(*run) for run in runs])


def encode_region(part: Part) -> bytes:
    starts, states = part
    return _to_little_endian(starts).tobytes() + states


def load_region(map_: SectorMap, region: int, raw: bytes, where: str) -> None:
    """Set the states of an encoded region."""
    count, rest = divmod(len(raw), _REGION_RUN)
    starts = array("I", raw[: _START * count])
    try:
        if rest:
            raise BadInput(f"{len(raw)} bytes are not a multiple of a run's {_REGION_RUN}")
        map_.load_part(region, (_to_little_endian(starts), raw[_START * count :]))
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def _to_little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class RunLoader:
    """Loads encoded changes into a map.

    Writers split runs at the map's parts. Runs that cover the disk repeatedly would take hours to load, and
    raise BadInput.
    """

    def __init__(self, map_: SectorMap) -> None:
        self._map = map_
        self._cost = self._runs = 0

    def load_runs(self, raw: bytes, where: str) -> None:
        """Set the states of encoded runs."""
        if len(raw) % _RUN.size:
            raise BadInput(f"{where}: {len(raw)} bytes are not a multiple of a run's {_RUN.size}")
        self._runs += len(raw) // _RUN.size
        for start, end, state in _RUN.iter_unpack(raw):
            if start >= end or end > MAX_SECTOR or state > _MAX_STATE:
                raise BadInput(f"{where}: invalid run {start}..{end} of state {state}")
            self._cost += self._map.count_parts(start, end)
            if self._cost > _MAX_PARTS + 4 * self._runs:
                raise BadInput(f"{where}: its runs cover the disk too many times")
            self._map.set_state(start, end, state)
