"""Read the history of a disk (`trim record`): complete and as it was at its checkpoint, or not at all."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NoReturn

from opwatch.errors import BadInput, OpwatchError, PermissionMissing, RefusedError
from opwatch.recording.coding.plain import PlainDecoder
from opwatch.recording.coding.runs import RunLoader
from opwatch.recording.reading.opening import CheckedFile, parse_small_document, read_shapes
from opwatch.recording.schema import HISTORY
from opwatch.trim.history.saved import Checkpoint, HistoryDrive, SavedHistory
from opwatch.trim.history.sectormap import SectorMap

_MAX_HEADER_ROWS, _MAX_HEADER_BYTES = 256, 1 << 20


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
        header = dict(file.iter_rows("header", f"LIMIT {_MAX_HEADER_ROWS}", most_bytes=_MAX_HEADER_BYTES))
        if HISTORY not in header:
            raise BadInput(f"{path} is a recording without a history")
        try:
            return _parse_history(file, str(header[HISTORY])), file.is_being_written
        except BadInput as error:
            raise UnusableHistoryError(str(error)) from error


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
