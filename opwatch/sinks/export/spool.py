"""Rows that wait for their conversion to Parquet: compressed files that a kill can only shorten."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_CLOSED, _OPEN = ".rows.gz", ".rows.gz.part"
_LOCK = ".lock"
_NAME = re.compile(
    r"[\w.-]+-(?P<time>(?P<day>\d{8})T\d{6})Z-(?P<shard>[0-9a-f]{2})-[0-9a-f]{6}\.rows\.gz", re.ASCII
)
_READ_BYTES = 1 << 20
# zlib: a gzip stream with the largest window.
_GZIP = 31


@dataclass(frozen=True, slots=True)
class SpooledRows:
    """A closed file of rows of one day and shard. `stem` names the Parquet file, so that a repeated
    conversion writes the same file."""

    path: Path
    stem: str
    time: str
    day: str
    shard: str
    size: int


class RowSpool:
    """A folder of row files, with at most one that is open for writing. Belongs to one thread."""

    def __init__(self, folder: Path, host: str, shard: str) -> None:
        self._folder, self._shard = folder, shard
        self._host = re.sub(r"[^A-Za-z0-9.-]+", "_", host).strip("._-") or "host"
        self._open: Path | None = None
        folder.mkdir(mode=0o700, exist_ok=True)

    def add_rows(self, at: datetime, rows: Iterable[dict[str, Any]]) -> None:
        """Append rows durably. On any error the file keeps its earlier rows only."""
        text = "".join(json.dumps(row) + "\n" for row in rows)
        packer = zlib.compressobj(1, wbits=_GZIP)
        # Each batch is a gzip member of its own, so that a file can be read up to its last complete batch.
        batch = packer.compress(text.encode()) + packer.flush()
        if self._open is None:
            start = f"{self._host}-{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
            self._open = self._folder / f"{start}-{self._shard}-{secrets.token_hex(3)}{_OPEN}"
        descriptor = os.open(self._open, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, batch)
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)

    def close_file(self) -> None:
        """Close the open file: its rows can be converted."""
        if self._open:
            _close_file(self._open)
            self._open = None

    def drop_oldest(self, most_bytes: int) -> list[SpooledRows]:
        """Remove the oldest closed files beyond a size, and return them."""
        closed = list_spooled(self._folder)
        size, dropped = sum(rows.size for rows in closed), []
        for rows in closed:
            if size <= most_bytes:
                break
            rows.path.unlink(missing_ok=True)
            dropped.append(rows)
            size -= rows.size
        return dropped


def _write_all(descriptor: int, raw: bytes) -> None:
    view = memoryview(raw)
    while view:
        view = view[os.write(descriptor, view) :]


def _close_file(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not path.stat().st_size:
            path.unlink()
        else:
            path.rename(path.with_name(path.name.removesuffix(_OPEN) + _CLOSED))


def close_leftovers(folder: Path) -> None:
    """Close the files that a killed recorder left open. Only the recorder of the ring may call this."""
    for path in sorted(folder.glob(f"*{_OPEN}")):
        _close_file(path)


def list_spooled(folder: Path) -> list[SpooledRows]:
    """Return the closed files, the oldest first."""
    spooled = []
    with os.scandir(folder) as entries:
        for entry in entries:
            parts = _NAME.fullmatch(entry.name)
            if parts and entry.is_file(follow_symlinks=False):
                day = f"{parts['day'][:4]}-{parts['day'][4:6]}-{parts['day'][6:]}"
                stem = entry.name.removesuffix(_CLOSED)
                size = entry.stat(follow_symlinks=False).st_size
                path = Path(entry.path)
                spooled.append(SpooledRows(path, stem, parts["time"], day, parts["shard"], size))
    return sorted(spooled, key=lambda rows: (rows.time, rows.stem))


@contextlib.contextmanager
def lock_spool(folder: Path) -> Iterator[bool]:
    """Yield whether this process may convert the files of a folder; only one does at a time."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def extract_rows(source: Path, target: Path) -> int:
    """Write the rows as JSON lines, up to the first incomplete batch. Return the number of bytes after
    them."""
    complete = read = 0
    with source.open("rb") as packed, target.open("wb") as lines:
        total = os.fstat(packed.fileno()).st_size
        unpacker, rest = zlib.decompressobj(_GZIP), b""
        while raw := rest or packed.read(_READ_BYTES):
            try:
                lines.write(unpacker.decompress(raw))
            except zlib.error:
                break
            rest = unpacker.unused_data
            if unpacker.eof:
                complete, read = lines.tell(), packed.tell() - len(rest)
                unpacker = zlib.decompressobj(_GZIP)
        lines.truncate(complete)
    return total - read
