"""Recordings with invalid SQLite pages: pointer cycles, false lengths, hostile write-ahead logs."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

from opwatch.recording.schema import PAGE_BYTES

_INTERIOR, _LEAF = 5, 13
_NUMBERS = (0, 1, 2, 127, 128, 255, 256, 1000, 0x7FFF, 0xFFFF)
_LARGE = (0, 1, 2, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
# Page size, versions, sizes, page counts, free pages and encoding in a file header, as (offset, width).
_HEADER = (
    *((at, 2) for at in (16,)),
    *((at, 1) for at in range(18, 24)),
    *((at, 4) for at in range(24, 100, 4)),
)
_SPARSE = 5 << 30
_LOG_MAGIC = 0x377F0682
_LOG_HEAD = struct.Struct(">8I")
_LOG_FRAME = struct.Struct(">6I")


def make_log_path(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


class PageChanger:
    """Damages the pages of a recording."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.changes: dict[str, Callable[[bytearray], None]] = {
            "pointers": self._redirect_pointers,
            "overflow": self._redirect_overflow,
            "cells": self._falsify_cells,
            "header": self._change_header,
            "schema": self._swap_roots,
            "zeroed": self._overwrite_page,
        }

    def change_pages(self, good: bytes, name: str) -> bytes:
        """Return the file with one to three changes of this kind."""
        raw = bytearray(good)
        for _ in range(self._chance.randrange(1, 4)):
            self.changes[name](raw)
        return bytes(raw)

    def _find_page(self, raw: bytearray, kinds: tuple[int, ...]) -> tuple[int, int, int] | None:
        """Return a B-tree page's offset, its header's offset, and its number of cells."""
        there = []
        for begin in range(0, len(raw) - PAGE_BYTES + 1, PAGE_BYTES):
            head = begin + (100 if not begin else 0)
            cells = int.from_bytes(raw[head + 3 : head + 5])
            if raw[head] in kinds and 0 < cells < PAGE_BYTES // 2:
                there.append((begin, head, cells))
        return self._chance.choice(there) if there else None

    def _redirect_pointers(self, raw: bytearray) -> None:
        """Redirect pointers of an interior page to one page, to itself, or to other tables' pages."""
        page = self._find_page(raw, (_INTERIOR,))
        if page is None:
            return
        begin, head, cells = page
        own, pages = begin // PAGE_BYTES + 1, len(raw) // PAGE_BYTES
        kind = self._chance.random()
        target = own if kind < 0.3 else self._chance.randrange(1, pages + 3)
        at = [begin + int.from_bytes(raw[head + 12 + 2 * n : head + 14 + 2 * n]) for n in range(cells)]
        for place in (*at, head + 8):
            if self._chance.random() < 0.7:
                number = target if kind < 0.8 else self._chance.choice((*_LARGE, own, pages))
                raw[place : place + 4] = number.to_bytes(4)

    def _redirect_overflow(self, raw: bytearray) -> None:
        """Redirect overflow chains backwards, into each other, or nowhere."""
        pages = len(raw) // PAGE_BYTES
        for _ in range(self._chance.choice((1, 3, pages))):
            begin = self._chance.randrange(pages) * PAGE_BYTES
            if raw[begin] == 0:
                number = self._chance.choice(
                    (begin // PAGE_BYTES + 1, self._chance.randrange(pages + 2), *_LARGE)
                )
                raw[begin : begin + 4] = number.to_bytes(4)

    def _falsify_cells(self, raw: bytearray) -> None:
        """Make all cells of a page the same cell, or falsify counts and lengths."""
        page = self._find_page(raw, (_LEAF, _INTERIOR, 10, 2))
        if page is None:
            return
        begin, head, cells = page
        first = head + (8 if raw[head] in (_LEAF, 10) else 12)
        kind = self._chance.random()
        if kind < 0.3:
            one = raw[first : first + 2]
            more = self._chance.choice((cells, 200))
            raw[head + 3 : head + 5] = more.to_bytes(2)
            room = max(min(first + 2 * more, begin + PAGE_BYTES) - first, 2) // 2
            raw[first : first + 2 * room] = bytes(one) * room
        elif kind < 0.5:
            at = head + self._chance.choice((1, 3, 5))
            raw[at : at + 2] = self._chance.choice(_NUMBERS).to_bytes(2)
        else:
            cell = begin + int.from_bytes(raw[first : first + 2])
            lie = self._chance.choice((b"\x00", b"\x7f", b"\xff\x7f", b"\x87\xff\xff\x7f", b"\xff" * 9))
            at = min(cell + self._chance.randrange(6), len(raw) - len(lie))
            raw[at : at + len(lie)] = lie

    def _change_header(self, raw: bytearray) -> None:
        at, width = self._chance.choice(_HEADER)
        if width == 2:
            value = self._chance.choice((0, 1, 3, 256, 512, 1024, 4096, 32768, 65535))
        elif width == 1:
            value = self._chance.choice((0, 1, 2, 3, 32, 64, 128, 255))
        else:
            value = self._chance.choice((*_LARGE, len(raw) // PAGE_BYTES, self._chance.randrange(8)))
        raw[at : at + width] = value.to_bytes(width)

    def _swap_roots(self, raw: bytearray) -> None:
        """Let tables start on another table's page. The root page is stored one byte before the statement's
        text."""
        places = []
        at = raw.find(b"CREATE TABLE")
        while at > 0:
            places.append(at - 1)
            at = raw.find(b"CREATE TABLE", at + 1)
        for place in places:
            if self._chance.random() < 0.3:
                raw[place] = self._chance.randrange(len(raw) // PAGE_BYTES + 2) & 0x7F

    def _overwrite_page(self, raw: bytearray) -> None:
        begin = self._chance.randrange(len(raw) // PAGE_BYTES) * PAGE_BYTES
        raw[begin : begin + PAGE_BYTES] = self._chance.choice((bytes(PAGE_BYTES), b"\xff" * PAGE_BYTES))


class LogWriter:
    """Writes hostile write-ahead logs (`-wal`) with correct checksums beside a recording."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def write_log(self, path: Path) -> None:
        log, chance = make_log_path(path), self._chance
        page = chance.choice((PAGE_BYTES,) * 6 + (0, 1, 3, 1024, 4096, 65536))
        frames = chance.choice((0, 1, 2, 5, 50, 2000))
        with log.open("wb") as file:
            file.write(self._build_frames(path.read_bytes(), page, frames))
            if chance.random() < 0.3:
                file.truncate(chance.choice((0, 20, 31, 32, 100, 1 << 20, _SPARSE, 1 << 42)))

    def _build_frames(self, raw: bytes, page: int, count: int) -> bytes:
        chance, pages = self._chance, max(len(raw) // PAGE_BYTES, 1)
        head = struct.pack(">6I", _LOG_MAGIC, 3007000, page, 0, 7, 11)
        sums = _compute_checksum(head, (0, 0))
        out = [head, struct.pack(">2I", *sums)]
        if chance.random() < 0.1:
            return b"".join(out) + chance.randbytes(1000)
        for number in range(count if page else 0):
            at = chance.randrange(1, pages + 2)
            body = raw[(at - 1) * PAGE_BYTES :][:page].ljust(page, b"\0")
            if chance.random() < 0.2:
                body = chance.choice((bytes(page), body[::-1], chance.randbytes(page)))
            if chance.random() < 0.05:
                at = chance.choice(_LARGE)
            is_last = number == count - 1 or chance.random() < 0.1
            size = chance.choice((pages, pages, *_LARGE)) if is_last else 0
            start = struct.pack(">2I", at, size)
            sums = _compute_checksum(start + body, sums)
            out += [struct.pack(">6I", at, size, 7, 11, *sums), body]
            if len(out) > 4000 or (page > 4096 and number > 50):
                break
        return b"".join(out)


def _compute_checksum(raw: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    """Return SQLite's log checksum over little-endian words, as the magic number demands."""
    first, second = sums
    words = struct.unpack(f"<{len(raw) // 4}I", raw[: len(raw) // 4 * 4])
    for one, two in zip(words[::2], words[1::2], strict=False):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
