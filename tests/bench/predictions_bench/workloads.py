"""Workloads of made-up systems: writes and trims in mapping units, without an end."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Callable, Iterator, Sequence

TRIM = 1 << 31
KINDS = ("uniform", "zipf", "zoned", "streams", "files", "bursts")


class Workload:
    """Changes on the units 0 to `active`, of which the first `written` are ever written."""

    name = ""

    def __init__(self, active: int, draw: random.Random) -> None:
        self.active, self.draw = active, draw
        self._rest: Iterator[tuple[int, int]] = iter(())

    def write_units(self, count: int) -> array[int]:
        """Return changes that write about this many units: pairs of a first unit and a number of units."""
        changes = array("I")
        while count > 0:
            for first, units in self.make_changes():
                changes.extend((first, units))
                count -= 0 if units & TRIM else units
        return changes

    def make_changes(self) -> Sequence[tuple[int, int]]:
        """Return the next changes, some hundreds of units."""
        raise NotImplementedError

    def list_free(self) -> Iterator[int]:
        """Yield the active units that hold no live data now."""
        return iter(())


class UniformLoad(Workload):
    def __init__(self, active: int, draw: random.Random) -> None:
        super().__init__(active, draw)
        self.size = draw.choice((1, 1, 1, 2, 4))
        self.name = f"uniform, {4 * self.size} KiB"

    def make_changes(self) -> Sequence[tuple[int, int]]:
        blocks, size = self.active // self.size, self.size
        return [(int(self.draw.random() * blocks) * size, size) for _ in range(256)]


class ZipfLoad(Workload):
    def __init__(self, active: int, draw: random.Random) -> None:
        super().__init__(active, draw)
        theta = draw.uniform(0.5, 1.2)
        self.name = f"zipf {theta:.2f}"
        self._units = list(range(active))
        draw.shuffle(self._units)
        self._sums = list(itertools.accumulate(rank**-theta for rank in range(1, active + 1)))

    def make_changes(self) -> Sequence[tuple[int, int]]:
        return [(unit, 1) for unit in self.draw.choices(self._units, cum_weights=self._sums, k=512)]


class ZonedLoad(Workload):
    def __init__(self, active: int, draw: random.Random) -> None:
        super().__init__(active, draw)
        space = draw.choice((0.02, 0.05, 0.1, 0.2, 0.3))
        writes = draw.uniform(max(2 * space, 0.4), 0.95)
        hot = int(space * active)
        self.name = f"{100 * writes:.0f} % of the writes to {100 * space:.0f} %"
        begin = draw.randrange(active - hot)
        self._zones = [range(begin, begin + hot), range(begin), range(begin + hot, active)]
        rest = active - hot
        self._weights = [writes, (1 - writes) * begin / rest, (1 - writes) * (rest - begin) / rest]

    def make_changes(self) -> Sequence[tuple[int, int]]:
        zones = self.draw.choices(self._zones, self._weights, k=512)
        return [(zone.start + int(self.draw.random() * len(zone)), 1) for zone in zones]


class StreamsLoad(Workload):
    """A log or two, written in order in a circle, beside random writes."""

    def __init__(self, active: int, draw: random.Random) -> None:
        super().__init__(active, draw)
        self._edge = int(active * draw.uniform(0.1, 0.8))
        self._ratio = draw.uniform(0.2, 0.9)
        self._run = draw.choice((8, 32, 128))
        self._hot = draw.choice((1.0, 1.0, 0.2))
        self.name = f"{100 * self._ratio:.0f} % in order on {100 * self._edge // active} %, random beside"
        count = draw.choice((1, 2))
        edges = [self._edge * part // count for part in range(count + 1)]
        self._logs = [range(*pair) for pair in itertools.pairwise(edges)]
        self._places = [0] * count

    def make_changes(self) -> Sequence[tuple[int, int]]:
        made = []
        for _ in range(4):
            at = self.draw.randrange(len(self._logs))
            log, place = self._logs[at], self._places[at]
            count = min(self._run, len(log) - place)
            made.append((log.start + place, count))
            self._places[at] = (place + count) % len(log)
            rest = self.active - self._edge
            for _ in range(round(count * (1 / self._ratio - 1))):
                spread = rest * (self._hot if self.draw.random() < 0.8 else 1.0)
                made.append((self._edge + int(self.draw.random() * spread), 1))
        return made


class FilesLoad(Workload):
    """Files that are created, overwritten in part, and deleted. The filesystem fills up to a level."""

    def __init__(self, active: int, draw: random.Random) -> None:
        super().__init__(active, draw)
        self._fill = draw.uniform(0.4, 0.85)
        self._mean = draw.choice((4, 16, 64))
        self._overwrites = draw.choice((0.0, 0.3, 0.6))
        self._is_young = draw.random() < 0.5
        self.discards = draw.random() < 0.4
        self.name = (
            f"files of {4 * self._mean} KiB, {100 * self._fill:.0f} % full"
            f"{', online discard' if self.discards else ''}"
        )
        self._free = bytearray(b"\1" * active)
        self._free_count, self._hand = active, 0
        self._files: list[list[tuple[int, int]]] = []
        self._log = (0, max(active // 100, 8))
        self._place = 0
        for unit in range(*self._log):
            self._free[unit] = 0
        self._free_count -= self._log[1]

    def _allocate(self, count: int) -> list[tuple[int, int]]:
        """Take the next free extents."""
        extents: list[tuple[int, int]] = []
        while count:
            first = self._free.find(1, self._hand)
            if first < 0:
                self._hand = 0
                continue
            end = self._free.find(0, first, first + count)
            end = min(first + count, self.active) if end < 0 else end
            self._free[first:end] = bytes(end - first)
            extents.append((first, end - first))
            count -= end - first
            self._free_count -= end - first
            self._hand = end
        return extents

    def make_changes(self) -> Sequence[tuple[int, int]]:
        made: list[tuple[int, int]] = []
        for _ in range(4):
            size = min(max(int(self.draw.expovariate(1 / self._mean)), 1), 16 * self._mean)
            while self._files and self._free_count - size < (1 - self._fill) * self.active:
                made.extend(self._delete())
            if self._files and self.draw.random() < self._overwrites:
                made.append(self.draw.choice(self.draw.choice(self._files)))
            else:
                self._files.append(self._allocate(size))
                made.extend(self._files[-1])
            made.append((self._place, 1))
            self._place = (self._place + 1) % self._log[1]
        return made

    def _delete(self) -> Iterator[tuple[int, int]]:
        count = len(self._files)
        at = (
            self.draw.randrange(max(3 * count // 4, 0), count)
            if self._is_young
            else self.draw.randrange(count)
        )
        self._files[at], self._files[-1] = self._files[-1], self._files[at]
        for first, units in self._files.pop():
            self._free[first : first + units] = b"\1" * units
            self._free_count += units
            if self.discards:
                yield first, units | TRIM

    def list_free(self) -> Iterator[int]:
        return (unit for unit in range(self.active) if self._free[unit])


class BurstsLoad(Workload):
    """A database's hot set that moves, with backups in order from time to time."""

    def __init__(self, active: int, draw: random.Random) -> None:
        super().__init__(active, draw)
        self._hot = draw.uniform(0.05, 0.3)
        self._ratio = draw.uniform(0.5, 0.9)
        self._edge = int(active * draw.uniform(0.5, 0.9))
        self._burst = max((active - self._edge) // draw.choice((2, 4, 8)), 8)
        self._between = max(int(self._burst * draw.uniform(0.5, 4)), 64)
        self._left, self._place, self._turn = self._between, self._edge, 0
        self.name = f"bursts of {self._burst} units beside a hot set of {100 * self._hot:.0f} %"

    def make_changes(self) -> Sequence[tuple[int, int]]:
        if self._left <= 0:
            count = min(self._burst, self.active - self._place)
            made = [(self._place + at, min(32, count - at)) for at in range(0, count, 32)]
            self._place = self._edge if self._place + count >= self.active else self._place + count
            self._left = self._between
            return made
        self._left -= 256
        hot = int(self._hot * self._edge)
        made = []
        for _ in range(256):
            spread = hot if self.draw.random() < self._ratio else self._edge
            made.append((int(self.draw.random() * spread), 1))
        return made


_LOADS: dict[str, Callable[[int, random.Random], Workload]] = {
    "uniform": UniformLoad,
    "zipf": ZipfLoad,
    "zoned": ZonedLoad,
    "streams": StreamsLoad,
    "files": FilesLoad,
    "bursts": BurstsLoad,
}


def make_workload(kind: str, active: int, draw: random.Random) -> Workload:
    return _LOADS[kind](active, draw)
