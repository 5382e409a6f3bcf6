"""Requests that a disk's history keeps: in order and complete, or refused."""

from __future__ import annotations

import sqlite3
import zlib
from array import array
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import BadInput, OpwatchError
from opwatch.recording.coding.requests import decode_requests, encode_requests
from opwatch.recording.reading.history import read_history, read_requests
from opwatch.recording.writing import history as module
from opwatch.recording.writing.history import HistoryFile
from opwatch.trim.history.changes import RECORD, ChangeKind
from opwatch.trim.history.requests import RequestRow, join_rows, select_requests
from opwatch.trim.history.saved import Checkpoint, HistoryDrive
from opwatch.trim.history.sectormap import SectorMap

DRIVE = HistoryDrive("sda", "S1", None, 3 << 19, 8, 0)
CHECKPOINT = Checkpoint(1, 2, "boot", 3, 4, 5, 6, 0, None, 7)
WRITE, DISCARD = ChangeKind.WRITE, ChangeKind.DISCARD


def make_row(*requests: tuple[int, int, int], follows: bool = True, begin_ns: int = 10**9) -> RequestRow:
    sectors, lengths, kinds = zip(*requests, strict=True)
    return RequestRow(
        begin_ns, begin_ns + 10**9, follows, array("Q", sectors), array("I", lengths), bytes(kinds)
    )


def write_rows(path: Path, *rows: RequestRow, look: Checkpoint = CHECKPOINT) -> None:
    file = HistoryFile(path)
    file.replace_map(DRIVE, look, SectorMap(DRIVE.sectors))
    for row in rows:
        file.add_changes(look, (), row)
    file.close()


def test_requests_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "h"
    first = make_row((8, 16, WRITE), (1000, 8, DISCARD), follows=False)
    write_rows(path, first, make_row((16, 8, WRITE), begin_ns=5 * 10**9))
    saved, requests = read_requests(path)
    assert requests.drive == saved.drive == DRIVE
    assert list(requests.sectors) == [8, 1000, 16]
    assert list(requests.lengths) == [16, 8, 8]
    assert requests.kinds == bytes((WRITE, DISCARD, WRITE))
    assert (requests.written_sectors, requests.discarded_sectors) == (24, 8)
    assert (requests.gaps, requests.seconds) == (0, 5.0)


def test_owners_are_read_in_order_and_unknown_in_rows_without_them(tmp_path: Path) -> None:
    path = tmp_path / "h"
    owned = make_row((16, 8, WRITE), (32, 8, WRITE))._replace(owners=array("H", (2, 1)))
    look = replace(CHECKPOINT, owners=("/a.service", "/b.service"))
    write_rows(path, make_row((8, 16, WRITE), follows=False), owned, look=look)
    saved, requests = read_requests(path)
    assert saved.look.owners == ("/a.service", "/b.service")
    assert list(requests.owners) == [0, 2, 1]
    assert list(requests.sectors) == [8, 16, 32]


def test_history_of_an_earlier_release_has_no_owners(tmp_path: Path) -> None:
    path = tmp_path / "h"
    write_rows(path, make_row((8, 16, WRITE)))
    saved, requests = read_requests(path)
    assert not requests.owners and not saved.look.owners


def test_unknown_owner_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h"
    write_rows(path, make_row((8, 16, WRITE))._replace(owners=array("H", [1])))
    with pytest.raises(OpwatchError, match="owner"):
        read_requests(path)


def test_requests_of_a_continued_history_are_kept_with_the_gap(tmp_path: Path) -> None:
    path = tmp_path / "h"
    write_rows(path, make_row((8, 16, WRITE), follows=False))
    write_rows(path, make_row((16, 8, WRITE), follows=False, begin_ns=10**12))
    _, requests = read_requests(path)
    assert list(requests.sectors) == [8, 16]
    assert (requests.gaps, requests.seconds) == (1, 2.0)


def test_oldest_requests_make_room_for_new_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h"
    monkeypatch.setattr(module, "_REQUEST_BYTES", 200)
    write_rows(path, *(make_row((8 * at, 8, WRITE)) for at in range(40)))
    _, requests = read_requests(path)
    kept = list(requests.sectors)
    assert 0 < len(kept) < 20
    assert kept == [8 * at for at in range(40 - len(kept), 40)]


@pytest.mark.parametrize("which", ["min", "max"])
def test_a_missing_row_is_refused(tmp_path: Path, which: str) -> None:
    path = tmp_path / "h"
    write_rows(path, *(make_row((8 * at, 8, WRITE)) for at in range(3)))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DELETE FROM contents WHERE content = (SELECT {which}(content) FROM contents)")
    with pytest.raises(OpwatchError, match="requests are missing"):
        read_requests(path)
    read_history(path)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h"
    write_rows(path, *(make_row((8 * at, 8, WRITE)) for at in range(300)))
    path.write_bytes(path.read_bytes()[:-2048])
    with pytest.raises(OpwatchError, match="not a readable history"):
        read_requests(path)


def test_a_history_without_requests_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h"
    write_rows(path)
    with pytest.raises(OpwatchError, match="no requests"):
        read_requests(path)


def test_a_request_beyond_the_disk_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h"
    write_rows(path, make_row((DRIVE.sectors - 8, 16, WRITE)))
    with pytest.raises(OpwatchError, match="beyond the disk"):
        read_requests(path)


def test_failed_requests_and_commands_are_left_out() -> None:
    rows = [
        (8, 1, 20, 16, WRITE, 0, 0),
        (24, 2, 30, 8, WRITE, 10, 0),
        (0x28, 3, 40, 0, ChangeKind.SCSI, 0, 0),
        (64, 4, 50, 8, ChangeKind.ZEROES, 0, 0),
        (80, 5, 45, 8, DISCARD, 0, 0),
    ]
    raw = b"".join(RECORD.pack(*row) for row in rows)
    row = select_requests(raw, follows=True)
    assert row == make_row((8, 16, WRITE), (64, 8, ChangeKind.ZEROES), (80, 8, DISCARD))._replace(
        begin_ns=20, end_ns=50
    )
    assert select_requests(raw[32:64], follows=True) is None
    places = {3: 1, 9: 2}
    records = [(*fields[:6], owner) for fields, owner in zip(rows, (3, 9, 3, 9, 4), strict=True)]
    owned = select_requests(b"".join(RECORD.pack(*one) for one in records), follows=True, places=places)
    assert owned and owned == row._replace(owners=array("H", (1, 2, 0)))
    whole = select_requests(b"".join(RECORD.pack(*rows[at]) for at in (0, 3)), follows=False)
    assert whole and list(whole.sectors) == [8, 64] and not whole.follows


def test_rows_are_joined_in_order() -> None:
    joined = join_rows([make_row((8, 16, WRITE), follows=False), make_row((24, 8, DISCARD), begin_ns=7**12)])
    assert list(joined.sectors) == [8, 24] and list(joined.lengths) == [16, 8]
    assert not joined.follows and joined.end_ns == 7**12 + 10**9


@pytest.mark.parametrize("change", [(0, 255), (20, 3), (28, 255), (-1, 200), (41, 0)])
def test_damaged_rows_are_refused(change: tuple[int, int]) -> None:
    size, body = encode_requests(make_row((8, 16, WRITE), (64, 8, DISCARD)))
    assert decode_requests(size, body, "here") == make_row((8, 16, WRITE), (64, 8, DISCARD))
    raw = bytearray(zlib.decompress(body, -15))
    raw[change[0]] = change[1]
    packer = zlib.compressobj(wbits=-15)
    damaged = packer.compress(raw) + packer.flush()
    if change[0] == 0:
        damaged = damaged[:-5]
    with pytest.raises(BadInput, match="here"):
        decode_requests(size, damaged, "here")
