"""Tracers of fixed sets of disks, combined into a tracer whose set of disks can change while attached."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from opwatch.errors import OpwatchError
from opwatch.host.device import Leaf
from opwatch.trace import abi
from opwatch.trace.tracing import Tracer, read_until_settled
from opwatch.trace.trust import Reading

# Each part runs its programs for every request of the machine, at some 10 ns for disks that the part does not
# watch.
MAX_PARTS = 16
# The kernel counts a request some microseconds after its completion is traced, or later if the CPU is taken
# away. Several readings at this distance do not all fall into such a moment.
_WARM_UP_READINGS = 3
_WARM_UP_S = 0.005


@dataclass(slots=True)
class _Part:
    """One tracer. `places`: its leaves' numbers in order; `live`: the leaves still watched."""

    tracer: Tracer
    places: list[int]
    live: set[int]


def _split_batches(leaves: Sequence[Leaf]) -> Iterable[list[Leaf]]:
    """Split the leaves into batches for one tracer each. Leaves on the same disk stay together if possible,
    because they share the disk's entries for requests in flight."""
    by_disk: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        by_disk.setdefault(leaf.device.disk.name, []).append(leaf)
    batch: list[Leaf] = []
    for group in by_disk.values():
        for begin in range(0, len(group), abi.MAX_TARGETS):
            chunk = group[begin : begin + abi.MAX_TARGETS]
            if len(batch) + len(chunk) > abi.MAX_TARGETS:
                yield batch
                batch = []
            batch += chunk
    if batch:
        yield batch


class TracerSet:
    """Tracers that are attached from construction to close().

    A leaf is identified by its place, a number that is never reused: a disk that returns gets a new place.
    """

    def __init__(self, attach: Callable[[Sequence[Leaf]], Tracer], most: int | None = None) -> None:
        """`most`: maximum number of leaves at a time."""
        self._attach, self._most = attach, most
        self._parts: list[_Part] = []
        self._numbers = itertools.count()
        # Misses of closed parts.
        self._past_misses: int | None = 0
        # The same for all parts, because all use the same hooks on the same kernel.
        self.backend = self.hooks = ""
        self.lacks: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()

    def add_leaves(self, leaves: Sequence[Leaf]) -> list[int]:
        """Attach to more leaves, all or none; return their places in the same order."""
        there = sum(len(part.live) for part in self._parts)
        if self._most is not None and there + len(leaves) > self._most:
            raise OpwatchError(
                f"{there + len(leaves)} disks are too many: opwatch watches and records at most {self._most} "
                "at a time. Name some with --dev"
            )
        batches = list(_split_batches(leaves))
        if self._parts and len(self._parts) + len(batches) > MAX_PARTS:
            raise OpwatchError(
                f"{len(self._parts)} sets of programs are already attached, one for each arrival of disks, "
                "and each slows every request a little. Restart opwatch to watch all disks"
            )
        parts: list[_Part] = []
        place_of: dict[int, int] = {}
        try:
            for batch in batches:
                places = list(itertools.islice(self._numbers, len(batch)))
                parts.append(_Part(self._attach(batch), places, set(places)))
                place_of |= {id(leaf): place for leaf, place in zip(batch, places, strict=True)}
        except BaseException:
            for part in parts:
                part.tracer.close()
            raise
        self._parts += parts
        for part in parts:
            self.backend, self.hooks = part.tracer.backend, part.tracer.hooks
            self.lacks = tuple(part.tracer.lacks)
            self.notes += tuple(note for note in part.tracer.notes if note not in self.notes)
        return [place_of[id(leaf)] for leaf in leaves]

    def group_by_tracer(self, places: Collection[int]) -> list[tuple[Tracer, list[int]]]:
        """Return the tracers of these places, each with its own places."""
        groups = [(part.tracer, [place for place in part.places if place in places]) for part in self._parts]
        return [(tracer, own) for tracer, own in groups if own]

    def with_places(self) -> list[tuple[Tracer, list[int]]]:
        """Return each tracer with its leaves' places in order, including leaves that left."""
        return [(part.tracer, list(part.places)) for part in self._parts]

    def remove_leaf(self, place: int) -> None:
        """Stop watching a leaf. A part is closed with its last leaf."""
        part = self._find_part(place)
        part.live.remove(place)
        if not part.live:
            self._past_misses = _sum_known((self._past_misses, part.tracer.read_misses()))
            self._parts.remove(part)
            part.tracer.close()

    def read(self, wanted: Collection[int] | None = None) -> dict[int, Reading]:
        """Return a reading of each watched leaf, or of each wanted one."""
        readings: dict[int, Reading] = {}
        for part in self._parts:
            places = part.live if wanted is None else part.live & set(wanted)
            if places:
                pairs = zip(part.places, part.tracer.read(), strict=True)
                readings |= {place: reading for place, reading in pairs if place in places}
        return readings

    def read_settled(
        self, wanted: Collection[int] | None = None, patience_s: float = 0.2
    ) -> dict[int, Reading]:
        """Return readings during which nothing completed, or the last readings after `patience_s`."""
        readings: dict[int, Reading] = {}

        def read_wanted() -> list[Reading]:
            readings.update(self.read(wanted))
            return list(readings.values())

        read_until_settled(read_wanted, patience_s)
        return readings

    def read_first(self, wanted: Collection[int], patience_s: float = 0.05) -> dict[int, Reading]:
        """Return the first readings of these leaves.

        Earlier readings establish the kernel's surplus over the tracer, which reveals a reading taken before
        the kernel has counted a completion.
        """
        for _ in range(_WARM_UP_READINGS):
            self.read(wanted)
            time.sleep(_WARM_UP_S)
        return self.read_settled(wanted, patience_s)

    def read_misses(self) -> int | None:
        """Return how often the kernel skipped our programs since the start, None if unknown."""
        return _sum_known((self._past_misses, *(part.tracer.read_misses() for part in self._parts)))

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        """Return (name, id, runs, run_ns, recursion misses) of each attached program."""
        return [program for part in self._parts for program in part.tracer.list_programs()]

    def close(self) -> None:
        for part in self._parts:
            part.tracer.close()
        self._parts = []

    def _find_part(self, place: int) -> _Part:
        return next(part for part in self._parts if place in part.places)


def _sum_known(numbers: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one of the numbers is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
