"""Other programs' files in a recording."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opwatch.codec import decode
from opwatch.errors import BadInput
from opwatch.foreign import MAX_BYTES, parse_json
from opwatch.recording.reading.reader import RecordedEvent, RecordedRun
from opwatch.recording.schema import FILE

# Maximum size of a file that is read, and maximum memory for its values. Larger files are kept but not read.
_MAX_READ_BYTES = 16 << 20
MAX_FILE_MEMORY = 96 << 20


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file's name and its rows of `contents`."""

    name: str
    size: int
    contents: tuple[int, ...]


def iterate_files(run: RecordedRun) -> Iterator[StoredFile]:
    """Yield the files of a recording in order; raise BadInput for an invalid event."""
    for event in run.events:
        if event.kind == FILE:
            yield _parse_file(event, f"{run.name}: table events, a file")


def _parse_file(event: RecordedEvent, where: str) -> StoredFile:
    file = decode(StoredFile, parse_json(event.words, where), where)
    if file.size > MAX_BYTES:
        raise BadInput(
            f"{where}: the file has {file.size} bytes, but recordings keep at most {MAX_BYTES} of a file"
        )
    return file


def read_stored_file(run: RecordedRun, file: StoredFile) -> bytes:
    """Return the bytes of a file; raise BadInput if it is too large to be read."""
    if file.size > _MAX_READ_BYTES:
        raise BadInput(
            f"{run.name}: {file.name} has {file.size} bytes, but at most {_MAX_READ_BYTES} can be read"
        )
    raw = bytearray()
    for number in file.contents:
        raw += run.read_content(number)
        if len(raw) > file.size:
            break
    if len(raw) != file.size:
        raise BadInput(f"{run.name}: {file.name} has {len(raw)} bytes, not {file.size}")
    return bytes(raw)
