"""Read request owners from the tracers of a watch, and resolve their names."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.owners.cgroups import IoHierarchy, find_io_hierarchy
from opwatch.collectors.owners.processes import find_process
from opwatch.owners.cells import OwnedCounts, OwnerGrouping, OwnerKey, OwnerKind, ReadCells
from opwatch.owners.lives import Cell, Earlier
from opwatch.owners.sample import OwnerRow, OwnerSample
from opwatch.trace.tracer_set import TracerSet

# Minimum time between name lookups, because each walks all cgroups.
_NAMES_S = 5.0
# Maximum number of names kept, including evicted owners.
_MAX_NAMES = 1 << 14
_GROUPS, _PROC = Path("/sys/fs/cgroup"), Path("/proc")


def make_group_notes(by: OwnerGrouping | None, root: Path = _GROUPS, proc: Path = _PROC) -> list[str]:
    """Return notes about control groups for the user, before the first line."""
    if by is not OwnerGrouping.CGROUP:
        return []
    hierarchy = find_io_hierarchy(proc)
    if hierarchy.version == 1:
        return [_make_version_1_note(hierarchy)]
    control = root / "cgroup.subtree_control"
    if not control.exists():
        return [f"{root} is not a cgroup2 filesystem: cgroups are shown by number, not by name"]
    if "io" in control.read_text().split():
        return []
    return [
        "the kernel accounts all requests to /, because no cgroup has the io controller enabled: write +io "
        f"to {control}, or let systemd do it (IOAccounting=yes)"
    ]


def _make_version_1_note(hierarchy: IoHierarchy) -> str:
    if hierarchy.root is None:
        return (
            "the kernel accounts I/O to cgroups of version 1 (blkio), which are not mounted here: they are "
            "shown by number, not by name"
        )
    return (
        f"the kernel accounts I/O to the cgroups of version 1 in {hierarchy.root}, and write-back to /: "
        "names are those of that hierarchy"
    )


class LiveOwners:
    """Reads counts by owner from the tracers. Empty if `by` is None."""

    def __init__(self, tracers: TracerSet, by: OwnerGrouping | None, max_names: int = _MAX_NAMES) -> None:
        """`max_names` bounds the names kept of owners, besides those of the last reading."""
        self._tracers, self._by, self._max_names = tracers, by, max_names
        self._names: dict[OwnerKey, str] = {}
        self._groups: dict[int, str] = {}
        # Control group of each process.
        self._inside: dict[OwnerKey, str] = {}
        self._looked = float("-inf")

    @property
    def name_count(self) -> int:
        """Return the number of names kept."""
        return len(self._names) + len(self._groups) + len(self._inside)

    def read_owners(self, places: Collection[int]) -> dict[int, OwnerSample]:
        """Return the owners at the last readings of these places."""
        if self._by is None:
            return {}
        cells: dict[int, ReadCells] = {}
        earlier: dict[int, Mapping[Cell, Earlier]] = {}
        has_waits: dict[int, bool] = {}
        for tracer, all_places in self._tracers.with_places():
            # A tracer attached without owners has none.
            if isinstance(tracer, BlockTracer) and tracer.owned:
                cells |= zip(all_places, tracer.owned, strict=True)
                earlier |= zip(all_places, tracer.earlier, strict=True)
                has_waits |= dict.fromkeys(all_places, tracer.has_owner_waits)
        cells = {place: owned for place, owned in cells.items() if place in places}
        self._resolve_names(cells)
        return {
            place: OwnerSample(
                self._by, self._make_rows(owned, earlier[place]), owned.no_room, has_waits[place]
            )
            for place, owned in cells.items()
        }

    def _make_rows(self, owned: ReadCells, earlier: Mapping[Cell, Earlier]) -> tuple[OwnerRow, ...]:
        counts: dict[OwnerKey, dict[str, OwnedCounts]] = {}
        for (key, op), counted in owned.cells.items():
            if key and any(counted):
                counts.setdefault(key, {})[op] = counted
        lives: dict[OwnerKey, dict[str, Earlier]] = {}
        for (key, op), one in earlier.items():
            lives.setdefault(key, {})[op] = one
        return tuple(
            OwnerRow(*key, self._names.get(key), counts[key], self._inside.get(key), lives.get(key, {}))
            for key in sorted(counts, key=_sort_key)
        )

    def _resolve_names(self, cells: Mapping[int, ReadCells]) -> None:
        """Resolve the names of new owners. Owners keep their names after exit."""
        keys = {key for owned in cells.values() for key, _ in owned.cells if key}
        if len(self._names) > self._max_names:
            self._names = {key: name for key, name in self._names.items() if key in keys}
            self._inside = {key: group for key, group in self._inside.items() if key in keys}
        new = keys - self._names.keys()
        for owned in cells.values():
            self._names |= {key: name for key, name in owned.names.items() if key in new}
        for key in new:
            if key.kind is OwnerKind.PROCESS:
                self._resolve_process(key)
        unnamed = {key for key in new if key.kind is OwnerKind.CGROUP}
        now = time.monotonic()
        if unnamed - {key for key in unnamed if key.number in self._groups} and now - self._looked > _NAMES_S:
            # Groups that vanished are kept for requests that complete later, but not without end.
            earlier = self._groups if len(self._groups) <= self._max_names else {}
            self._groups = earlier | find_io_hierarchy().read_names()
            self._looked = now
        self._names |= {key: self._groups[key.number] for key in unnamed if key.number in self._groups}

    def _resolve_process(self, key: OwnerKey) -> None:
        """Use the name of the process instead of the name of the observed thread."""
        process = find_process(key.number, key.since_ns)
        if process:
            self._names[key] = process.name
            self._inside |= {key: process.group} if process.group else {}


def _sort_key(key: OwnerKey) -> tuple[str, int, int]:
    return key.kind.value, key.number, key.since_ns
