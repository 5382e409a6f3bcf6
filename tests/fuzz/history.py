"""Damaged change records and history files: refused with ValueError, or read up to the damage.

python -m tests.fuzz.history [INPUTS [SEED]]
"""

from __future__ import annotations

import json
import random
import struct
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

from opwatch.trim.history import journal
from opwatch.trim.history.changes import RECORD
from opwatch.trim.history.history import History
from opwatch.trim.history.sectormap import SectorMap, SectorState
from tests.fuzz.rules import BOUND

GOOD = Path(__file__).parents[1] / "fixtures" / "good" / "trim" / "disk.history"
_SECTORS = 1 << 12
_EDGES = (0, 1, 0x7F, 0x80, 0xFF)
_VALUES: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    1 << 41,
    1 << 63,
    1 << 200,
    1.5,
    "",
    "x",
    [],
    {},
    [None],
    {"x": None},
    "!huge",
    "!far",
)


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


def _fuzz_file(chance: random.Random, raw: bytes) -> None:
    """Load a file with a damaged body, with or without a correct checksum."""
    if chance.random() < 0.5:
        loaded = journal.parse_history(damage_bytes(raw, chance))
        assert loaded.whole_bytes <= len(raw)
    else:
        body = damage_bytes(raw[16:], chance)
        loaded = journal.parse_history(raw[:8] + struct.pack("<II", len(body), zlib.crc32(body)) + body)
    if loaded.drive.sectors <= 1 << 24:
        check_map(loaded.map)
    # Loaded data must survive a save and reload.
    small = SectorMap(_SECTORS)
    again = journal.parse_history(
        journal.encode_snapshot(replace(loaded.drive, sectors=_SECTORS), loaded.look, small)
    )
    assert again.look == loaded.look


def _fuzz_types(chance: random.Random) -> None:
    """Load a frame with fields of other types and sizes and extreme runs, with a correct checksum."""
    raw = GOOD.read_bytes()
    [length] = struct.unpack_from("<I", raw, 8)
    [text_length] = struct.unpack_from("<I", raw, 16)
    text = json.loads(raw[20 : 20 + text_length])
    for _ in range(chance.randrange(1, 3)):
        table = chance.choice((text, text["drive"], text["look"]))
        if isinstance(table, dict) and table:
            table[chance.choice(list(table))] = chance.choice(_VALUES)
        if not isinstance(text.get("drive"), dict) or not isinstance(text.get("look"), dict):
            break
    edges = [0, 1, 8, 1 << 19, (1 << 41) - 1, 1 << 41, (1 << 64) - 1]
    runs = b"".join(
        struct.pack("<QQB", chance.choice(edges), chance.choice(edges), chance.randrange(4))
        for _ in range(chance.randrange(40))
    )
    if chance.random() < 0.5:
        runs = raw[20 + text_length : 16 + length]
    packed = json.dumps(text).replace('"!huge"', "9" * 5000).replace('"!far"', "1e999").encode()
    if chance.random() < 0.1:
        packed = packed.replace(b"{", b"[" * chance.choice((1, 100, 5000)), 1)
    body = struct.pack("<I", len(packed)) + packed + runs
    frame = struct.pack("<II", len(body), zlib.crc32(body)) + body
    loaded = journal.parse_history(chance.choice((raw[:8], raw[: 16 + length])) + frame)
    assert loaded.map.pieces >= 0


def run(inputs: int, seed: int) -> None:
    """Run this many inputs. Raises at the first failure."""
    chance, raw = random.Random(seed), GOOD.read_bytes()
    [length] = struct.unpack_from("<I", raw, 8)
    first = raw[: 16 + length]
    for _ in range(inputs):
        try:
            begin, kind = time.thread_time(), chance.random()
            if kind < 0.4:
                _fuzz_records(chance)
            elif kind < 0.7:
                _fuzz_file(chance, chance.choice((raw, first)))
            else:
                _fuzz_types(chance)
        except ValueError:
            pass
        spent = time.thread_time() - begin
        assert spent < BOUND.seconds, f"an input took {1000 * spent:.0f} ms"


if __name__ == "__main__":
    inputs, seed = (int(word) for word in (sys.argv[1:] + ["100000", "0"][len(sys.argv) - 1 :]))
    run(inputs, seed)
    print(f"{inputs} inputs from seed {seed}: all refused or sound")
