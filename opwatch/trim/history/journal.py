"""The history file: a map and what is known of it, then changes to it, each frame with its checksum. Pure.

A frame is written as a whole or does not count: what a crash leaves of the last one is cut off. What is
large is several frames, which count once the last of them is there."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from itertools import islice

from opwatch.errors import BadInput
from opwatch.foreign import parse_json
from opwatch.frozen import field, frozen
from opwatch.trim.history.sectormap import Run, SectorMap, SectorState

MAGIC = b"opwhist1"
_FRAME = struct.Struct("<II")  # length of what follows, and its CRC-32
_TEXT = struct.Struct("<I")  # length of the JSON; runs follow it
_RUN = struct.Struct("<QQB")
_FAR = 1 << 41
# A frame of a megabyte: none comes near the 4 GiB that its length can tell.
_CHUNK_RUNS = 1 << 16
_MOST_TEXT = 1 << 20
# A disk of one state has so many parts, twice.
_MOST_PARTS = 1 << 14


@frozen
class HistoryDrive:
    """Whose history it is. `granule` and `offset` are in sectors. The serial number and the wwid are None for
    disks that have none: such a disk is known by its name."""

    name: str
    serial: str | None
    wwid: str | None
    sectors: int
    granule: int
    offset: int


@frozen
class Look:
    """When the map was right, and by what that can be proven later. `boot`, `diskseq` and `slept_ns` (how
    long the machine had slept) must be the same, and the kernel's counts of the disk, in sectors. A slack is
    how much could have been missed unnoticed, None when that is not known."""

    mono_ns: int
    wall_ns: int
    boot: str
    diskseq: int | None
    slept_ns: int
    written: int
    discarded: int
    written_slack: int | None
    discarded_slack: int | None
    since_wall_ns: int
    forgotten: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def used_since(self, counts: tuple[int, int]) -> tuple[bool, bool]:
        """(whether it may have been written to, whether discarded) that the map does not know of, by the
        kernel's counts now."""
        return (
            counts[0] != self.written or self.written_slack != 0,
            counts[1] != self.discarded or self.discarded_slack != 0,
        )


@frozen
class Saved:
    """What a file says. `whole_bytes` is the length up to the end of its last whole frame with a look; `rest`
    says what stands behind it and why that does not count, None when nothing does."""

    drive: HistoryDrive
    look: Look
    map: SectorMap
    whole_bytes: int
    rest: str | None = None


def _frame(text: dict[str, object], runs: Iterable[Run]) -> bytes:
    raw = json.dumps(text, separators=(",", ":")).encode()
    body = b"".join((_TEXT.pack(len(raw)), raw, *(_RUN.pack(*run) for run in runs)))
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _frames(head: dict[str, object], look: Look, runs: Iterable[Run]) -> Iterator[bytes]:
    """Frames of a bounded size: those before the last have `more`, and count once that one is there."""
    rest = iter(runs)
    chunk = list(islice(rest, _CHUNK_RUNS))
    while following := list(islice(rest, _CHUNK_RUNS)):
        yield _frame({**head, "more": True}, chunk)
        head, chunk = {}, following
    yield _frame({**head, "look": asdict(look)}, chunk)


def snapshot_frames(drive: HistoryDrive, look: Look, map_: SectorMap) -> Iterator[bytes]:
    """A whole file, piece by piece."""
    known = (run for run in map_.runs() if run[2] != SectorState.UNKNOWN)
    yield MAGIC
    yield from _frames({"drive": asdict(drive)}, look, known)


def snapshot(drive: HistoryDrive, look: Look, map_: SectorMap) -> bytes:
    """A whole file."""
    return b"".join(snapshot_frames(drive, look, map_))


def delta(look: Look, runs: Iterable[Run]) -> bytes:
    """Frames for the end of a file."""
    return b"".join(_frames({}, look, runs))


def load(raw: bytes) -> Saved:
    """What a file says, up to the first frame that is torn, damaged or makes no sense: a crash may leave
    anything at the end. BadInput, which names the frame and its offset, when nothing counts before that."""
    if raw[: len(MAGIC)] != MAGIC:
        raise BadInput("it does not begin as a history does")
    loading, at, rest = _Loading(), len(MAGIC), None
    while at < len(raw):
        where = f"frame {loading.frames + 1} at byte {at}"
        body = _body(raw, at)
        if body is None:
            rest = f"{where} is cut or damaged"
            break
        try:
            loading.take(body, at + _FRAME.size + len(body))
        except BadInput as error:
            rest = f"{where}: {error}"
            break
        at += _FRAME.size + len(body)
    if loading.look is None or loading.drive is None or loading.map is None:
        raise BadInput(rest or f"frame {loading.frames} is the last one and has no look")
    if not rest and at != loading.whole_bytes:
        rest = f"the frames behind byte {loading.whole_bytes} have no look"
    return Saved(loading.drive, loading.look, loading.map, loading.whole_bytes, rest)


class _Loading:
    """Frames as they are read. Runs wait until the look that they belong to is there."""

    def __init__(self) -> None:
        self.drive: HistoryDrive | None = None
        self.look: Look | None = None
        self.map: SectorMap | None = None
        self.whole_bytes = self.frames = 0
        self._waiting: list[bytes] = []
        self._cost = self._runs = 0

    def take(self, body: bytes, end: int) -> None:
        """A frame. BadInput for one that makes no sense, which changes nothing."""
        text, runs = _parse(body)
        drive = self.drive or _drive(text.get("drive"))
        map_ = self.map or SectorMap(drive.sectors)
        cost, count = self._cost + _cost(runs, map_), self._runs + len(runs) // _RUN.size
        if cost > _MOST_PARTS + 4 * count:
            raise BadInput("its runs cover the disk too often")
        look = None if text.get("more") is True else _look(text.get("look"))
        self.drive, self.map, self._cost, self._runs = drive, map_, cost, count
        self.frames += 1
        self._waiting.append(runs)
        if look is None:
            return
        for part in self._waiting:
            for start, last, state in _RUN.iter_unpack(part):
                map_.put(start, last, state)
        self._waiting.clear()
        self.look, self.whole_bytes = look, end


def _cost(runs: bytes, map_: SectorMap) -> int:
    """How many parts of the map the runs touch. Whoever writes a file cuts them at the ends of these parts;
    runs that cover the disk again and again would take hours."""
    cost = 0
    for start, end, state in _RUN.iter_unpack(runs):
        if start >= end or end > _FAR or state > max(SectorState):
            raise BadInput(f"the run {start}..{end} of state {state} makes no sense")
        cost += map_.parts_of(start, end)
    return cost


def _body(raw: bytes, at: int) -> bytes | None:
    """The next frame; None when it is not whole."""
    if at + _FRAME.size > len(raw):
        return None
    length, checksum = _FRAME.unpack_from(raw, at)
    body = raw[at + _FRAME.size : at + _FRAME.size + length]
    return body if len(body) == length and zlib.crc32(body) == checksum else None


def _parse(body: bytes) -> tuple[dict[str, object], bytes]:
    if len(body) < _TEXT.size:
        raise BadInput("it is too short")
    [length] = _TEXT.unpack_from(body)
    runs = body[_TEXT.size + length :]
    if length > _MOST_TEXT or len(runs) % _RUN.size:
        raise BadInput("it has no whole text or no whole runs")
    text = parse_json(body[_TEXT.size : _TEXT.size + length], "its text")
    if not isinstance(text, dict):
        raise BadInput("its text is no object")
    return text, runs


def _take(
    document: object, kind: type, optional: tuple[str, ...], texts: tuple[str, ...]
) -> dict[str, object]:
    """The fields of a dataclass whose other fields are numbers. Fields that we do not know are left out."""
    if not isinstance(document, dict):
        raise BadInput(f"there is no {kind.__name__}")
    taken: dict[str, object] = {}
    for column in fields(kind):
        value = document.get(column.name)
        right = isinstance(value, str) if column.name in texts else _is_number(value)
        if (
            column.name not in ("forgotten", "notes")
            and not right
            and (value is not None or column.name not in optional)
        ):
            raise BadInput(f"{column.name} of its {kind.__name__} is {value!r:.60}")
        taken[column.name] = value
    return taken


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _drive(document: object) -> HistoryDrive:
    taken = _take(document, HistoryDrive, ("serial", "wwid"), ("name", "serial", "wwid"))
    drive = HistoryDrive(**taken)  # type: ignore[arg-type]
    if not 0 < drive.sectors < _FAR or not 0 < drive.granule < _FAR or not 0 <= drive.offset < _FAR:
        raise BadInput("its drive makes no sense")
    return drive


def _look(document: object) -> Look:
    taken = _take(document, Look, ("diskseq", "written_slack", "discarded_slack"), ("boot",))
    forgotten, notes = taken["forgotten"], taken["notes"]
    if not isinstance(forgotten, dict) or not all(_is_number(count) for count in forgotten.values()):
        raise BadInput(f"forgotten of its Look is {forgotten!r:.60}")
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise BadInput(f"notes of its Look is {notes!r:.60}")
    taken["notes"] = tuple(notes)
    return Look(**taken)  # type: ignore[arg-type]
