"""Other programs' files in a recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.foreign import MOST_BYTES, parse_json, table_of
from opwatch.recording.reading.reader import RecordedEvent, RecordedRun
from opwatch.recording.schema import FILE

# Maximum size of a file that is read, and maximum memory for its values. Larger files are kept but not read.
_MOST_READ = 16 << 20
MOST_FILE_MEMORY = 96 << 20


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file's name and its rows of `contents`."""

    name: str
    size: int
    contents: tuple[int, ...]


def kept_files(run: RecordedRun) -> Iterator[KeptFile]:
    """Yield the files of a recording in order; raise BadInput for an invalid event."""
    for event in run.events:
        if event.kind == FILE:
            yield _kept_file(event, f"{run.name}: table events, a file")


def _kept_file(event: RecordedEvent, where: str) -> KeptFile:
    fields = Fields(table_of(parse_json(event.words, where), where), where)
    size, rows = fields.count("size"), fields.rows("contents")
    if size > MOST_BYTES:
        raise fields.bad(f"it has {size} bytes: no file of {MOST_BYTES} and more is kept")
    contents = tuple(fields.count_of(row, "contents") for row in rows)
    return KeptFile(fields.text("name"), size, contents)


def bytes_of(run: RecordedRun, file: KeptFile) -> bytes:
    """Return the bytes of a file; raise BadInput if it is too large to be read."""
    if file.size > _MOST_READ:
        raise BadInput(f"{run.name}: {file.name} has {file.size} bytes, and is read up to {_MOST_READ}")
    raw = bytearray()
    for number in file.contents:
        raw += run.content(number)
        if len(raw) > file.size:
            break
    if len(raw) != file.size:
        raise BadInput(f"{run.name}: {file.name} has {len(raw)} bytes, not {file.size}")
    return bytes(raw)
