"""Damaged kernel answers about file systems: refused with BadInput, or plausible free space.

python -m tests.fuzz.trim [INPUTS [SEED]]
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from opwatch.guard import reservations
from opwatch.sweep.ata.commands import decode_registers
from opwatch.sweep.ata.offers import decode_features
from opwatch.sweep.ata.security import find_security_refusal
from opwatch.trim.audit import kernel_log
from opwatch.trim.space import btrfs, f2fs, fiemap, fsmap, lba_status
from opwatch.trim.space.extents import Extents

from .rules import RefusedOrValid

GUARD = Path(__file__).parents[1] / "fixtures" / "good" / "guard"
_ANSWERS = ("two-keys.hex", "reservation.hex")
GOOD = Path(__file__).parents[1] / "fixtures" / "good" / "trim"
# Sense data with the registers of an ATA drive behind a SCSI disk.
_REGISTERS = bytes.fromhex("7201001d0000000e090c0100000000ff007f00004050")
# Security words of IDENTIFY, and values for them.
_OF_SECURITY = (82, 83, 85, 87, 89, 90, 128)
_WORDS = (0, 1, 2, 0x21, 0x29, 0xFE, 0xFF, 0x4000, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF)
_EDGES = (0, 1, 0x7F, 0x80, 0xFF)


class TrimFuzzer:
    """Sequence of inputs from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._maps = [path.read_bytes() for path in sorted(GOOD.glob("*.fsmap"))]
        self._f2fs = (GOOD / "f2fs.superblock").read_bytes(), (GOOD / "f2fs.segment_bits").read_bytes()
        known = json.loads((GOOD / "btrfs.json").read_text())
        self._trees = {
            name: b"".join(
                struct.pack("=3Q2I", 0, row[0], row[2], row[1], len(row[3]) // 2) + bytes.fromhex(row[3])
                for row in known[name]
            )
            for name in ("chunk", "dev", "free_space", "extent")
        }
        self._counts = {name: len(known[name]) for name in self._trees}

    def run_inputs(self, inputs: int) -> None:
        """Run this many inputs. Raises at the first failure."""
        targets: tuple[Callable[[], None], ...] = (
            self._fuzz_map,
            self._fuzz_tree,
            self._fuzz_file,
            self._fuzz_lba_status,
            self._fuzz_reservations,
            self._fuzz_ata_offers,
            self._fuzz_ata_security,
            self._fuzz_ata_registers,
            self._fuzz_segments,
            self._fuzz_log,
        )
        for _ in range(inputs):
            with RefusedOrValid((target := self._random.choice(targets)).__name__):
                target()

    def _damage_bytes(self, raw: bytes) -> bytes:
        changed = bytearray(raw)
        for _ in range(self._random.randrange(1, 6)):
            at = self._random.randrange(len(changed))
            changed[at] = self._random.choice((*_EDGES, self._random.randrange(256)))
        return bytes(
            changed[: self._random.randrange(len(changed))] if self._random.random() < 0.2 else changed
        )

    def _fuzz_map(self) -> None:
        answer = fsmap.decode_answer(self._damage_bytes(self._random.choice(self._maps)))
        for extents in answer.free.values():
            _check_extents(extents)
        assert answer.resume is None or len(answer.resume) == fsmap.RECORD_BYTES

    def _fuzz_file(self) -> None:
        extents = b"".join(struct.pack("=3Q16xI12x", at << 20, at << 24, 1 << 20, at & 1) for at in range(9))
        answer = self._damage_bytes(struct.pack("=2Q4I", 0, 1 << 40, 1, 9, 9, 0) + extents)
        for extent in fiemap.decode_extents(answer):
            assert extent.length > 0 and extent.physical + extent.length <= 1 << 62

    def _fuzz_lba_status(self) -> None:
        runs = b"".join(struct.pack(">QIB3x", at << 10, 1 << 10, at % 3) for at in range(9))
        decoded = lba_status.decode_runs(self._damage_bytes(struct.pack(">I4x", 4 + len(runs)) + runs), 512)
        _check_extents(Extents.from_pairs((run.start, run.end) for run in decoded))
        assert all(one.end == two.start for one, two in pairwise(decoded))

    def _fuzz_reservations(self) -> None:
        raw = self._damage_bytes(bytes.fromhex((GUARD / self._random.choice(_ANSWERS)).read_text()))
        assert len(reservations.decode_keys(raw)) <= len(raw) // 8
        reservation = reservations.decode_reservation(raw)
        assert reservation is None or reservation.kind

    def _fuzz_ata_offers(self) -> None:
        raw = self._damage_bytes(bytes.fromhex((GUARD / "page-89-qemu.hex").read_text()))
        assert decode_features(raw[: self._random.randrange(len(raw) + 1)])

    def _fuzz_ata_security(self) -> None:
        raw = bytearray.fromhex((GUARD / "page-89-qemu.hex").read_text())
        for word in self._random.sample(_OF_SECURITY, self._random.randrange(1, len(_OF_SECURITY) + 1)):
            raw[60 + 2 * word : 62 + 2 * word] = self._random.choice(_WORDS).to_bytes(2, "little")
        security = decode_features(self._damage_bytes(bytes(raw))).security
        assert 0 < 1000 * security.erase_time.timeout_s < 1 << 32
        assert (
            security.erase_time.seconds is None or security.erase_time.seconds < security.erase_time.timeout_s
        )
        if find_security_refusal(security, "sda") is None:
            assert security.is_supported and not (security.has_password or security.is_frozen)
            assert not (security.is_locked or security.is_expired)

    def _fuzz_ata_registers(self) -> None:
        assert decode_registers(self._damage_bytes(_REGISTERS)).lba < 1 << 48

    def _fuzz_segments(self) -> None:
        raw, text = self._f2fs
        geometry = f2fs.parse_superblock(self._damage_bytes(raw) if self._random.random() < 0.5 else raw)
        free, _ = f2fs.find_free_blocks(self._damage_bytes(text).decode("ascii", "replace"), geometry)
        _check_extents(free)
        assert free.end <= geometry.main_bytes + geometry.segments * 512 * geometry.block_bytes

    def _fuzz_log(self) -> None:
        text = self._damage_bytes((GOOD / "kmsg.txt").read_bytes()).decode(errors="replace")
        records = list(kernel_log.parse_records(text))
        assert all(whole.startswith(message) for message, whole in records)
        said = list(kernel_log.find_messages(records, ["sda", "ata3", "253:2"], ["8:0"]))
        assert len(said) <= len(records)

    def _parse_items(self, name: str) -> list[btrfs.TreeItem]:
        raw = self._trees[name]
        return list(
            btrfs.parse_items(
                self._damage_bytes(raw) if self._random.random() < 0.5 else raw, self._counts[name]
            )
        )

    def _fuzz_tree(self) -> None:
        chunks = [
            btrfs.parse_chunk(item) for item in self._parse_items("chunk") if item.type == btrfs.CHUNK_ITEM
        ]
        free = btrfs.find_free_addresses(self._parse_items("free_space"), 4096)
        used = btrfs.find_used_addresses(self._parse_items("extent"), 16384)
        dev = [item for item in self._parse_items("dev") if item.type == btrfs.DEV_EXTENT]
        for extents in btrfs.find_free_by_device(chunks, free - used, dev, {1: 512 << 20}).values():
            _check_extents(extents)
            assert extents.end <= 512 << 20


def _check_extents(extents: Extents) -> None:
    assert all(0 <= start < end for start, end in extents)
    assert all(one[1] < two[0] for one, two in pairwise(extents))


if __name__ == "__main__":
    inputs, seed = (int(word) for word in (sys.argv[1:] + ["100000", "0"][len(sys.argv) - 1 :]))
    TrimFuzzer(seed).run_inputs(inputs)
    print(f"{inputs} inputs from seed {seed}: all refused or sound")
