"""The free space in the file of a history."""

from __future__ import annotations

import sqlite3
from array import array
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.errors import BadInput, OpwatchError
from opwatch.recording.coding import free_space as coding
from opwatch.recording.coding.free_space import decode_free_space, encode_free_space
from opwatch.recording.reading.history import read_free_space, read_requests
from opwatch.recording.writing.history import HistoryFile
from opwatch.trim.history.saved import DiskFreeSpace
from opwatch.trim.history.sectormap import SectorMap
from opwatch.trim.space.extents import Extents
from tests.unit.recording.test_requests import CHECKPOINT, DRIVE, make_row

FREE = DiskFreeSpace(7**20, Extents.from_pairs([(4096, 8192), (1 << 20, 3 << 20)]), 512)


def write_history(path: Path, free: DiskFreeSpace | None) -> None:
    file = HistoryFile(path)
    if free:
        file.keep_free_space(free)
    file.replace_map(DRIVE, CHECKPOINT, SectorMap(DRIVE.sectors))
    file.add_changes(CHECKPOINT, (), make_row((8, 16, 0)))
    file.close()


def test_free_space_is_read_back(tmp_path: Path) -> None:
    write_history(tmp_path / "h", FREE)
    assert read_free_space(tmp_path / "h") == FREE
    assert list(read_requests(tmp_path / "h")[1].sectors) == [8]


def test_a_history_without_free_space_has_none(tmp_path: Path) -> None:
    write_history(tmp_path / "h", None)
    assert read_free_space(tmp_path / "h") is None


def test_a_missing_row_is_refused(tmp_path: Path) -> None:
    write_history(tmp_path / "h", FREE)
    with closing(sqlite3.connect(tmp_path / "h")) as connection, connection:
        connection.execute("DELETE FROM contents WHERE content = 0")
    with pytest.raises(OpwatchError, match="free space is missing"):
        read_free_space(tmp_path / "h")


def test_the_longest_pieces_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coding, "MAX_PIECES", 1)
    free = decode_free_space(FREE.wall_ns, *encode_free_space(FREE), "here")
    assert free == DiskFreeSpace(FREE.wall_ns, Extents.from_pairs([(1 << 20, 3 << 20)]), 512 + 4096)


@pytest.mark.parametrize("pairs", [[(8192, 4096)], [(4096, 8192), (8000, 9000)], [(4096, 1 << 60)]])
def test_impossible_free_space_is_refused(pairs: list[tuple[int, int]]) -> None:
    bounds = array("q", [start for start, _ in pairs]), array("q", [end for _, end in pairs])
    size, body = encode_free_space(DiskFreeSpace(1, Extents(*bounds)))
    with pytest.raises(BadInput, match="invalid free space"):
        decode_free_space(1, size, body, "here")


def test_damaged_bytes_are_refused() -> None:
    size, body = encode_free_space(FREE)
    for wrong_size, wrong_body in (
        (size + 16, body),
        (size - 1, body),
        (size, body[:-6]),
        (size, b"x" + body),
    ):
        with pytest.raises(BadInput, match="here"):
            decode_free_space(1, wrong_size, wrong_body, "here")
