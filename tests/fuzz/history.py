"""Damaged records of changes and history files: refused with ValueError, or read as far as they are whole.

python -m tests.fuzz.history [INPUTS [SEED]]
"""

from __future__ import annotations

import random
import struct
import sys
import zlib
from dataclasses import replace
from pathlib import Path

from opwatch.trim import journal
from opwatch.trim.changes import RECORD
from opwatch.trim.history import History
from opwatch.trim.sectormap import SectorMap, State

GOOD = Path(__file__).parents[1] / "fixtures" / "good" / "trim" / "disk.history"
_SECTORS = 1 << 12
_EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """The bytes with some of them changed, and sometimes without their end."""
    changed = bytearray(raw)
    for _ in range(chance.randrange(1, 6)):
        changed[chance.randrange(len(changed))] = chance.choice((*_EDGES, chance.randrange(256)))
    return bytes(changed[: chance.randrange(len(changed))] if chance.random() < 0.2 else changed)


def check_map(map_: SectorMap) -> None:
    """Every sector has one state."""
    at = 0
    for start, end, state in map_.runs():
        assert start == at < end
        assert state in State.__members__.values()
        at = end
    assert at == map_.sectors


def _records(chance: random.Random) -> None:
    rows = [
        RECORD.pack(
            chance.randrange(_SECTORS), at, at + chance.randrange(9), chance.randrange(1, 99), at % 8, 0, 0
        )
        for at in range(20)
    ]
    history = History(_SECTORS, chance.choice((1, 8, 10)), chance.choice((0, 3)))
    try:
        history.apply(damaged(b"".join(rows), chance))
    finally:
        check_map(history.map)


def _file(chance: random.Random, raw: bytes) -> None:
    """A whole file with a damaged body and the right checksum is as bad as one with the wrong checksum."""
    if chance.random() < 0.5:
        found = journal.load(damaged(raw, chance))
        assert found.whole_bytes <= len(raw)
    else:
        body = damaged(raw[16:], chance)
        found = journal.load(raw[:8] + struct.pack("<II", len(body), zlib.crc32(body)) + body)
    if found.drive.sectors <= 1 << 24:
        check_map(found.map)
    # What was read can be written and read again.
    small = SectorMap(_SECTORS)
    again = journal.load(journal.snapshot(replace(found.drive, sectors=_SECTORS), found.look, small))
    assert again.look == found.look


def run(inputs: int, seed: int) -> None:
    """That many inputs; the first that breaks a rule raises."""
    chance, raw = random.Random(seed), GOOD.read_bytes()
    [length] = struct.unpack_from("<I", raw, 8)
    first = raw[: 16 + length]
    for _ in range(inputs):
        try:
            if chance.random() < 0.5:
                _records(chance)
            else:
                _file(chance, chance.choice((raw, first)))
        except ValueError:
            continue


if __name__ == "__main__":
    inputs, seed = (int(word) for word in (sys.argv[1:] + ["100000", "0"][len(sys.argv) - 1 :]))
    run(inputs, seed)
    print(f"{inputs} inputs from seed {seed}: every one refused or sound")
