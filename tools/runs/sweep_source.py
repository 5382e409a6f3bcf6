"""A sweep as the user names it: by its name in the journals, or by a file that holds it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opwatch.codec import decode
from opwatch.errors import BadInput, PermissionMissing, UsageError
from opwatch.foreign import parse_json, read_bytes, require_table, starts_with
from opwatch.guard.identity import DiskIdentity
from opwatch.journal.file import FOLDER, MAX_BYTES, list_journals, make_journal_path
from opwatch.journal.state import SweepState, parse_journal
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import SWEEP
from opwatch.sinks.sweep.document import TYPE
from opwatch.sinks.sweep.levels import build_sweep_document
from opwatch.sinks.sweep.pts_document import TYPE as TEST_TYPE

_JSON_START, _JOURNAL_START = b"{", b'{"entry":"request"'
# The request and one outcome. A recording without an outcome has no level to show.
_MIN_ENTRIES = 2


@dataclass(frozen=True, slots=True)
class SweepSource:
    """The document of a sweep, and the name by which the user knows it."""

    name: str
    document: dict[str, Any]

    def read_identity(self) -> DiskIdentity | None:
        """Return the identity of the swept drive, or None for simulated flash."""
        table = self.document.get("disk")
        return None if table is None else decode(DiskIdentity, table, f"{self.name}: disk")


def load_sweep(text: str, journals: Path | None) -> SweepSource:
    """Return the sweep of a name, a JSON document, a journal or a recording.

    Raise UsageError if no sweep is found, or if it has no levels.
    """
    path = Path(text)
    if not path.is_file():
        return _load_journal(text, journals or FOLDER)
    if starts_with(path, _JOURNAL_START):
        return _make_source(path.name, _read_journal(path))
    if starts_with(path, _JSON_START):
        document = require_table(parse_json(read_bytes(path), text), text)
        require_levels(document, text)
        return SweepSource(path.name, document)
    source = find_recorded_sweep(path)
    if source is None:
        raise UsageError(f"{text} is a recording, but not of a sweep: opwatch sweep run -o FILE makes one")
    return source


def find_sweep(paths: Sequence[Path], journals: Path | None) -> SweepSource | None:
    """Return the sweep that a report is about, or None for recordings and files of experiments."""
    texts = [str(path) for path in paths]
    sweeps = [text for text in texts if _is_sweep(text)]
    if not sweeps:
        return None
    if len(texts) > 1:
        raise UsageError(f"{sweeps[0]} is a sweep: report one sweep at a time")
    return load_sweep(texts[0], journals)


def _is_sweep(text: str) -> bool:
    """Return whether this is a sweep's name, journal, or document without an experiment."""
    path = Path(text)
    if not path.exists():
        # A missing file with a suffix is a recording; without one it may also be a misspelt sweep.
        return "/" not in text and not path.suffix
    if not starts_with(path, _JSON_START):
        return False
    if starts_with(path, _JOURNAL_START):
        return True
    document = parse_json(read_bytes(path), text)
    return isinstance(document, dict) and document.get("type") == TYPE and document.get("scenario") is None


def find_recorded_sweep(path: Path) -> SweepSource | None:
    """Return the sweep whose entries are in a recording, or None if no level was finished."""
    with closing(RecordedRun(path)) as run:
        entries = [event.words for event in run.events if event.kind == SWEEP]
    if len(entries) < _MIN_ENTRIES:
        return None
    raw = "".join(f"{entry}\n" for entry in entries).encode()
    return _make_source(path.name, parse_journal(raw, f"{path.name}: sweep"))


def require_levels(document: dict[str, Any], where: str) -> None:
    """Raise UsageError for the document of a test or of an experiment without levels."""
    kind = document.get("type")
    if kind == TEST_TYPE:
        raise UsageError(f"{where} is an SNIA test, which has no levels: opwatch sweep show prints it")
    if kind != TYPE:
        raise UsageError(f"{where} is not the document of a sweep (opwatch sweep run --json writes one)")


def _load_journal(name: str, folder: Path) -> SweepSource:
    path = make_journal_path(folder, name)
    try:
        is_there = path.is_file()
    except PermissionError:
        is_there = True
    if not is_there:
        if "/" in name or "." in name:
            raise UsageError(f"{name}: no such file")
        known = ", ".join(list_journals(folder)) or "none"
        raise UsageError(f"{name!r} is neither a file nor a sweep in {folder}; sweeps there: {known}")
    return _make_source(name, _read_journal(path))


def _read_journal(path: Path) -> SweepState:
    try:
        return parse_journal(read_bytes(path, MAX_BYTES), str(path))
    except PermissionError as error:
        raise PermissionMissing(f"{path} needs root") from error


def _make_source(name: str, state: SweepState) -> SweepSource:
    if state.request.test:
        raise UsageError(f"{name} is an SNIA test, which has no levels: opwatch sweep show prints it")
    outcomes = state.list_outcomes()
    if not outcomes:
        raise BadInput(f"{name}: no level of the sweep is finished yet")
    return SweepSource(name, build_sweep_document(state, outcomes))
