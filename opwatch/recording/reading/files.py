"""Files of other programs that a recording keeps beside its samples."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.errors import BadInput
from opwatch.fields import Fields
from opwatch.foreign import MOST_BYTES, parse_json, table_of
from opwatch.frozen import frozen
from opwatch.recording.reading.reader import RecordedEvent, RecordedRun
from opwatch.recording.schema import FILE

# A larger file is kept, but not read again; what the values of one that is take in memory.
_MOST_READ = 16 << 20
MOST_FILE_MEMORY = 96 << 20


@frozen
class KeptFile:
    """A file by its name, with the rows of `contents` that it consists of."""

    name: str
    size: int
    contents: tuple[int, ...]


def kept_files(run: RecordedRun) -> Iterator[KeptFile]:
    """The files of a recording, in the order in which they were kept. BadInput where an event is none."""
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
    """The bytes of a file. BadInput for one that is larger than what is read again."""
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
