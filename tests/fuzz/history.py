"""Damaged records of changes: refused with ValueError, or a map in which each sector has one state.

History files are recordings: tests/fuzz/recordings.py changes them.

    python -m tests.fuzz.history [INPUTS [SEED]]
"""

from __future__ import annotations

import contextlib
import random
import sys
import time

from opwatch.trim.history.changes import RECORD
from opwatch.trim.history.history import History
from opwatch.trim.history.sectormap import SectorMap, SectorState
from tests.fuzz.rules import BOUND

_SECTORS = 1 << 12
_EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def damage_bytes(raw: bytes, chance: random.Random) -> bytes:
    """Return the bytes with modifications, sometimes truncated."""
    changed = bytearray(raw)
    for _ in range(chance.randrange(1, 6)):
        changed[chance.randrange(len(changed))] = chance.choice((*_EDGES, chance.randrange(256)))
    return bytes(changed[: chance.randrange(len(changed))] if chance.random() < 0.2 else changed)


def check_map(map_: SectorMap) -> None:
    """Check that each sector has exactly one state."""
    at = 0
    for start, end, state in map_.iter_runs():
        assert start == at < end
        assert state in SectorState.__members__.values()
        at = end
    assert at == map_.sectors


def _fuzz_records(chance: random.Random) -> None:
    rows = [
        RECORD.pack(
            chance.randrange(_SECTORS), at, at + chance.randrange(9), chance.randrange(1, 99), at % 8, 0, 0
        )
        for at in range(20)
    ]
    history = History(_SECTORS, chance.choice((1, 8, 10)), chance.choice((0, 3)))
    try:
        history.apply_changes(damage_bytes(b"".join(rows), chance))
    finally:
        check_map(history.map)


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    chance = random.Random(seed)
    for _ in range(inputs):
        begin = time.thread_time()
        with contextlib.suppress(ValueError):
            _fuzz_records(chance)
        spent = time.thread_time() - begin
        assert spent < BOUND.seconds, f"an input took {1000 * spent:.0f} ms"


if __name__ == "__main__":
    inputs, seed = (int(word) for word in (sys.argv[1:] + ["100000", "0"][len(sys.argv) - 1 :]))
    run(inputs, seed)
    print(f"{inputs} inputs from seed {seed}: all refused or sound")
