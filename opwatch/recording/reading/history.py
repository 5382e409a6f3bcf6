"""Read the history of a disk (`trim record`): complete and as it was at its checkpoint, or not at all."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from opwatch.errors import BadInput, OpwatchError, PermissionMissing, RefusedError
from opwatch.recording.coding.free_space import FREE_ROW, decode_free_space
from opwatch.recording.coding.plain import PlainDecoder
from opwatch.recording.coding.requests import decode_requests
from opwatch.recording.coding.runs import RunLoader
from opwatch.recording.reading.opening import CheckedFile, parse_small_document, read_shapes
from opwatch.recording.schema import HISTORY
from opwatch.trim.history.requests import RecordedRequests, RequestRow, join_owners
from opwatch.trim.history.saved import Checkpoint, DiskFreeSpace, HistoryDrive, SavedHistory
from opwatch.trim.history.sectormap import SectorMap

_MAX_HEADER_ROWS, _MAX_HEADER_BYTES = 256, 1 << 20
# Requests of a history in memory. Writers keep fewer.
_MAX_REQUESTS = 1 << 25


class UnusableHistoryError(BadInput):
    """The file is a history, but its rows are damaged or incomplete."""


def read_history(path: Path) -> tuple[SavedHistory, bool]:
    """Return (content of a history, whether another process records into it)."""
    try:
        return read_history_file(path)
    except OSError as error:
        raise explain_error(error, path) from error
    except BadInput as error:
        raise OpwatchError(f"{path} is not a readable history: {error}") from error


def read_history_file(path: Path) -> tuple[SavedHistory, bool]:
    """Like read_history(). Raises OSError, UnusableHistoryError for a history that is damaged, and BadInput
    for another file."""
    if path.exists() and not path.is_file():
        raise RefusedError(f"{path} is not a regular file, so it cannot be a history")
    with closing(CheckedFile(path, may_be_written=True)) as file:
        drive_text = _read_drive_text(file)
        try:
            return _parse_history(file, drive_text), file.is_being_written
        except BadInput as error:
            raise UnusableHistoryError(str(error)) from error


def read_requests(path: Path) -> tuple[SavedHistory, RecordedRequests]:
    """Return (content of a history, all requests that it keeps). Raise OpwatchError if it is damaged or cut,
    and BadInput if it keeps none."""
    try:
        if path.exists() and not path.is_file():
            raise RefusedError(f"{path} is not a regular file, so it cannot be a history")
        with closing(CheckedFile(path, may_be_written=True)) as file:
            saved = _parse_history(file, _read_drive_text(file))
            if saved.is_salvaged:
                raise BadInput(file.damage or "it is damaged")
            return saved, _join_requests(saved, list(_iter_request_rows(file, saved.look)))
    except OSError as error:
        raise explain_error(error, path) from error
    except BadInput as error:
        raise OpwatchError(f"{path} is not a readable history: {error}") from error


def _read_drive_text(file: CheckedFile) -> str:
    header = dict(file.iter_rows("header", f"LIMIT {_MAX_HEADER_ROWS}", most_bytes=_MAX_HEADER_BYTES))
    if HISTORY not in header:
        raise BadInput(f"{file.name} is a recording without a history")
    return str(header[HISTORY])


def _iter_request_rows(file: CheckedFile, look: Checkpoint) -> Iterator[RequestRow]:
    expected, total = look.first_requests, 0
    for number, _, size, body in file.iter_rows(
        "contents", "WHERE content > ? ORDER BY content", (FREE_ROW,)
    ):
        where = f"{file.name}: table contents, row {number}"
        if number != expected:
            raise BadInput(f"{where} follows {expected - 1}: requests are missing")
        row = decode_requests(size, body, where)
        total += len(row.kinds)
        if total > _MAX_REQUESTS:
            raise BadInput(f"{where}: more than {_MAX_REQUESTS} requests")
        yield row
        expected += 1
    if expected != look.last_requests + 1:
        raise BadInput(
            f"{file.name}: table contents ends before row {look.last_requests}: requests are missing"
        )


def read_free_space(path: Path) -> DiskFreeSpace | None:
    """Return the free space at the end of a history's recording, or None if the file has none."""
    try:
        with closing(CheckedFile(path, may_be_written=True)) as file:
            look = _parse_history(file, _read_drive_text(file)).look
            if look.free_wall_ns is None:
                return None
            for _, _, size, body in file.iter_rows("contents", "WHERE content = ?", (FREE_ROW,)):
                return decode_free_space(look.free_wall_ns, size, body, f"{file.name}: free space")
            raise BadInput("the row of its free space is missing")
    except OSError as error:
        raise explain_error(error, path) from error
    except BadInput as error:
        raise OpwatchError(f"{path} is not a readable history: {error}") from error


def _join_requests(saved: SavedHistory, rows: list[RequestRow]) -> RecordedRequests:
    if not rows:
        raise BadInput("it has no requests: record again with opwatch trim record")
    sectors, lengths, seconds, gaps = array("Q"), array("I"), 0.0, 0
    end_ns = rows[0].begin_ns
    for row in rows:
        gaps += not row.follows
        # Time between two recordings does not count.
        seconds += max(row.end_ns - (end_ns if row.follows else row.begin_ns), 0) / 1e9
        end_ns = row.end_ns
        sectors.extend(row.sectors)
        lengths.extend(row.lengths)
    last = max(start + length for start, length in zip(sectors, lengths, strict=True))
    if last > saved.drive.sectors:
        raise BadInput(f"a request ends at sector {last}, beyond the disk's {saved.drive.sectors}")
    kinds = b"".join(row.kinds for row in rows)
    owners = join_owners(rows)
    if owners and max(owners) > len(saved.look.owners):
        raise BadInput(f"a request has owner {max(owners)}, and {len(saved.look.owners)} are known")
    # The first row starts the first recording, or is the oldest that was kept.
    gaps -= not rows[0].follows
    return RecordedRequests(saved.drive, sectors, lengths, kinds, seconds, gaps, owners=owners)


def explain_error(error: OSError, path: Path) -> OpwatchError:
    folder = path.absolute().parent
    if isinstance(error, FileNotFoundError) and not folder.exists():
        return OpwatchError(
            f"{path}: directory {folder} does not exist: create it, or use another file with -o"
        )
    kind = PermissionMissing if isinstance(error, PermissionError) else OpwatchError
    return kind(f"{path}: {error.strerror}")


def _parse_history(file: CheckedFile, drive_text: str) -> SavedHistory:
    decoder = PlainDecoder(read_shapes(file), _refuse_bytes, _refuse_reference)
    where = f"{file.name}: table header, {HISTORY}"
    drive = decoder.decode_instance(HistoryDrive, parse_small_document(drive_text, where), where)
    if not drive.is_valid:
        raise BadInput(f"{where}: invalid drive size or granule")
    where = f"{file.name}: table checkpoints"
    rows = list(file.iter_rows("checkpoints", "LIMIT 2"))
    if len(rows) != 1:
        raise BadInput(f"{where} has {len(rows)} rows, not 1")
    [(number, first, body)] = rows
    look = decoder.decode_instance(Checkpoint, parse_small_document(body, where), where)
    map_ = SectorMap(drive.sectors)
    loader, expected = RunLoader(map_), first
    for at, runs in file.iter_rows("changes", "ORDER BY number"):
        # Without one of its rows, or with one of an earlier state, the map would be wrong.
        if at != expected:
            raise BadInput(f"{file.name}: table changes: row {at} follows {expected - 1}")
        loader.load_runs(runs, f"{file.name}: table changes, row {at}")
        expected += 1
    if expected != number + 1:
        raise BadInput(f"{file.name}: table changes ends before row {number}")
    return SavedHistory(drive, look, map_, number, file.damage is not None)


def _refuse_bytes(number: int) -> NoReturn:
    raise BadInput(f"a history has no contents ({number})")


def _refuse_reference(kind: type, number: int, where: str) -> NoReturn:
    raise BadInput(f"{where}: a {kind.__name__} cannot be a reference ({number}) here")
