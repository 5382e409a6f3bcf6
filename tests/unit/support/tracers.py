"""A fake tracer with counts set by the test."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.errors import OpwatchError
from opwatch.host.device import Leaf
from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, make_sample


class FakeTracer:
    """Returns the reads of each disk from `reads`."""

    backend = "fake"
    hooks = "hand"
    lacks: Sequence[str] = ()
    notes: Sequence[str] = ()

    def __init__(self, leaves: Sequence[Leaf], reads: dict[str, int], misses: int | None = 0) -> None:
        self.leaves = list(leaves)
        self.is_open = True
        self._reads, self._misses = reads, misses

    def read(self) -> list[Reading]:
        assert self.is_open
        return [
            Reading(make_sample(1, read=Op([1000] * n, [4096] * n)), None, None, "there is no kernel here")
            for n in (self._reads.get(leaf.device.name, 0) for leaf in self.leaves)
        ]

    def read_settled(self, patience_s: float = 0.2) -> list[Reading]:
        return self.read()

    def read_misses(self) -> int | None:
        return self._misses

    def list_programs(self) -> list[tuple[str, int, int, int, int]]:
        return [("rq_issue", 1, 0, 0, 0)]

    def close(self) -> None:
        self.is_open = False


class FakeAttacher:
    """Attaches fake tracers and keeps them. `fails` makes the next attachment fail with this reason."""

    def __init__(self, misses: int | None = 0) -> None:
        self.tracers: list[FakeTracer] = []
        self.reads: dict[str, int] = {}
        self.fails: str | None = None
        self._misses = misses

    def __call__(self, leaves: Sequence[Leaf]) -> FakeTracer:
        if self.fails and self.tracers:
            raise OpwatchError(self.fails)
        self.tracers.append(FakeTracer(leaves, self.reads, self._misses))
        return self.tracers[-1]
