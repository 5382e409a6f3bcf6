"""Owners of a history's requests: control groups, by their place in the file."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable

from opwatch.collectors.owners.cgroups import find_io_hierarchy
from opwatch.trim.history.requests import read_owners

# A checkpoint has all names, and is written once per second.
_MAX_NAMES, _MAX_NAME_BYTES = 1000, 1 << 16
# The groups are listed again for an unknown owner, and in any case for a group that took over an id.
_UNKNOWN_S, _KNOWN_S = 1.0, 10.0
_ID_BITS = 0xFFFF


class OwnerPlaces:
    """The control groups in a history, by place from 1 in `names`, and the places of its records' owners.

    Names of earlier recordings into the same file keep their places. Groups beyond the limits have none.
    """

    def __init__(
        self, names: Iterable[str] = (), read_names: Callable[[], dict[int, str]] | None = None
    ) -> None:
        self.names = list(names)
        self._place_of = {name: place for place, name in enumerate(self.names, 1)}
        self._name_bytes = sum(len(name) for name in self.names)
        self._read_names = read_names or find_io_hierarchy().read_names
        self._groups: dict[int, str] = {}
        self._listed_s = -math.inf

    def find_places(self, raw: bytes) -> dict[int, int]:
        """Return the place of each owner in these records, or 0 if it is unknown."""
        owners = set(read_owners(raw)) - {0}
        age = time.monotonic() - self._listed_s
        if owners and (age > _KNOWN_S or (age > _UNKNOWN_S and not owners <= self._groups.keys())):
            self._list_groups()
        return {owner: self._find_place(owner) for owner in sorted(owners)}

    def _list_groups(self) -> None:
        groups = self._read_names()
        users = Counter(number & _ID_BITS for number in groups)
        # Groups that share their low bits cannot be distinguished.
        alone = {number & _ID_BITS: name for number, name in groups.items() if users[number & _ID_BITS] == 1}
        # A group that vanished may still own requests in flight, unless another took over its bits.
        left = {owner: name for owner, name in self._groups.items() if owner not in users}
        self._groups, self._listed_s = left | alone, time.monotonic()

    def _find_place(self, owner: int) -> int:
        name = self._groups.get(owner)
        if name is None:
            return 0
        if name not in self._place_of:
            if len(self.names) >= _MAX_NAMES or self._name_bytes + len(name) > _MAX_NAME_BYTES:
                return 0
            self.names.append(name)
            self._name_bytes += len(name)
            self._place_of[name] = len(self.names)
        return self._place_of[name]
