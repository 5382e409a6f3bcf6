"""The history file: a map and its context, then changes to the map, in frames with checksums. Pure.

A frame counts only if it is complete: an incomplete last frame, left by a crash, is cut off. Large content
takes several frames, which count once the last of them is complete.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from itertools import islice

from opwatch.errors import BadInput
from opwatch.foreign import parse_json
from opwatch.trim.history.sectormap import Run, SectorMap, SectorState

MAGIC = b"opwhist1"
_FRAME = struct.Struct("<II")  # length of the body, and its CRC-32
_TEXT = struct.Struct("<I")  # length of the JSON; runs follow it
_RUN = struct.Struct("<QQB")
_MAX_SECTOR = 1 << 41
# A frame has about a megabyte, far below the 4 GiB limit of its length field.
_CHUNK_RUNS = 1 << 16
_MAX_TEXT_BYTES = 1 << 20
# Twice the runs of a disk in a single state, which has one run per part.
_MAX_PARTS = 1 << 14


@dataclass(frozen=True, slots=True)
class HistoryDrive:
    """The drive of a history. `granule` and `offset` are in sectors. `serial` and `wwid` are None if the disk
    has none: the name then identifies the disk."""

    name: str
    serial: str | None
    wwid: str | None
    sectors: int
    granule: int
    offset: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The moment for which the map is correct, and the evidence to verify later that it still applies:
    `boot`, `diskseq`, `slept_ns` (the machine's total sleep) and the kernel's counts for the disk, in
    sectors, must be unchanged. A slack is the number of sectors that may have been missed unnoticed, None if
    unknown."""

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

    def detect_changes(self, counts: tuple[int, int]) -> tuple[bool, bool]:
        """Return (was written, was discarded): whether the disk may have changed unrecorded, given the
        kernel's counts now."""
        return (
            counts[0] != self.written or self.written_slack != 0,
            counts[1] != self.discarded or self.discarded_slack != 0,
        )


@dataclass(frozen=True, slots=True)
class SavedHistory:
    """Content of a history file. `whole_bytes` is the offset after the last complete frame with a Look.
    `rest` says what follows and why the data there do not count; None at the end of the file."""

    drive: HistoryDrive
    look: Checkpoint
    map: SectorMap
    whole_bytes: int
    rest: str | None = None


def _encode_frame(text: dict[str, object], runs: Iterable[Run]) -> bytes:
    raw = json.dumps(text, separators=(",", ":")).encode()
    body = b"".join((_TEXT.pack(len(raw)), raw, *(_RUN.pack(*run) for run in runs)))
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def _encode_frames(head: dict[str, object], look: Checkpoint, runs: Iterable[Run]) -> Iterator[bytes]:
    """Yield frames of limited size. All but the last have `more`, and count once the last is complete."""
    rest = iter(runs)
    chunk = list(islice(rest, _CHUNK_RUNS))
    while following := list(islice(rest, _CHUNK_RUNS)):
        yield _encode_frame({**head, "more": True}, chunk)
        head, chunk = {}, following
    yield _encode_frame({**head, "look": asdict(look)}, chunk)


def encode_snapshot_frames(drive: HistoryDrive, look: Checkpoint, map_: SectorMap) -> Iterator[bytes]:
    """Yield a complete file, in pieces."""
    known = (run for run in map_.iter_runs() if run[2] != SectorState.UNKNOWN)
    yield MAGIC
    yield from _encode_frames({"drive": asdict(drive)}, look, known)


def encode_snapshot(drive: HistoryDrive, look: Checkpoint, map_: SectorMap) -> bytes:
    """Return a complete file."""
    return b"".join(encode_snapshot_frames(drive, look, map_))


def encode_delta(look: Checkpoint, runs: Iterable[Run]) -> bytes:
    """Return frames to append to a file."""
    return b"".join(_encode_frames({}, look, runs))


def parse_history(raw: bytes) -> SavedHistory:
    """Parse a file up to the first torn, damaged or invalid frame: a crash may leave anything at the end.
    Raise BadInput with the frame's number and offset if nothing valid precedes that frame."""
    if raw[: len(MAGIC)] != MAGIC:
        raise BadInput("it does not start with a history's header")
    loading, at, rest = _FrameReader(), len(MAGIC), None
    while at < len(raw):
        where = f"frame {loading.frames + 1} at byte {at}"
        body = _extract_body(raw, at)
        if body is None:
            rest = f"{where} is truncated or damaged"
            break
        try:
            loading.add_frame(body, at + _FRAME.size + len(body))
        except BadInput as error:
            rest = f"{where}: {error}"
            break
        at += _FRAME.size + len(body)
    if loading.look is None or loading.drive is None or loading.map is None:
        raise BadInput(rest or f"the last frame ({loading.frames}) has no checkpoint")
    if not rest and at != loading.whole_bytes:
        rest = f"the frames after byte {loading.whole_bytes} have no checkpoint"
    return SavedHistory(loading.drive, loading.look, loading.map, loading.whole_bytes, rest)


class _FrameReader:
    """State while reading frames. Runs wait for the frame with their Look."""

    def __init__(self) -> None:
        self.drive: HistoryDrive | None = None
        self.look: Checkpoint | None = None
        self.map: SectorMap | None = None
        self.whole_bytes = self.frames = 0
        self._waiting: list[bytes] = []
        self._cost = self._runs = 0

    def add_frame(self, body: bytes, end: int) -> None:
        """Add a frame. Raise BadInput for an invalid frame, without any change of state."""
        text, runs = _parse_body(body)
        drive = self.drive or _parse_drive(text.get("drive"))
        map_ = self.map or SectorMap(drive.sectors)
        cost, count = self._cost + _count_touched_parts(runs, map_), self._runs + len(runs) // _RUN.size
        if cost > _MAX_PARTS + 4 * count:
            raise BadInput("its runs cover the disk too many times")
        look = None if text.get("more") is True else _parse_checkpoint(text.get("look"))
        self.drive, self.map, self._cost, self._runs = drive, map_, cost, count
        self.frames += 1
        self._waiting.append(runs)
        if look is None:
            return
        for part in self._waiting:
            for start, last, state in _RUN.iter_unpack(part):
                map_.set_state(start, last, state)
        self._waiting.clear()
        self.look, self.whole_bytes = look, end


def _count_touched_parts(runs: bytes, map_: SectorMap) -> int:
    """Return the number of map parts that the runs touch. Writers split runs at part boundaries; a file whose
    runs cover the disk repeatedly would take hours to load."""
    cost = 0
    for start, end, state in _RUN.iter_unpack(runs):
        if start >= end or end > _MAX_SECTOR or state > max(SectorState):
            raise BadInput(f"invalid run {start}..{end} of state {state}")
        cost += map_.count_parts(start, end)
    return cost


def _extract_body(raw: bytes, at: int) -> bytes | None:
    """Return the body of the frame at offset `at`; None if incomplete or damaged."""
    if at + _FRAME.size > len(raw):
        return None
    length, checksum = _FRAME.unpack_from(raw, at)
    body = raw[at + _FRAME.size : at + _FRAME.size + length]
    return body if len(body) == length and zlib.crc32(body) == checksum else None


def _parse_body(body: bytes) -> tuple[dict[str, object], bytes]:
    if len(body) < _TEXT.size:
        raise BadInput("it is too short")
    [length] = _TEXT.unpack_from(body)
    runs = body[_TEXT.size + length :]
    if length > _MAX_TEXT_BYTES or len(runs) % _RUN.size:
        raise BadInput("its text or its runs are incomplete")
    text = parse_json(body[_TEXT.size : _TEXT.size + length], "its text")
    if not isinstance(text, dict):
        raise BadInput("its text is not a JSON object")
    return text, runs


def _parse_fields(
    document: object, kind: type, optional: tuple[str, ...], texts: tuple[str, ...]
) -> dict[str, object]:
    """Return the fields of a dataclass in which all fields but `texts` are numbers. Ignore unknown fields."""
    if not isinstance(document, dict):
        raise BadInput(f"{kind.__name__} is missing")
    taken: dict[str, object] = {}
    for column in fields(kind):
        value = document.get(column.name)
        right = isinstance(value, str) if column.name in texts else _is_number(value)
        if (
            column.name not in ("forgotten", "notes")
            and not right
            and (value is not None or column.name not in optional)
        ):
            raise BadInput(f"invalid {column.name} in {kind.__name__}: {value!r:.60}")
        taken[column.name] = value
    return taken


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63


def _parse_drive(document: object) -> HistoryDrive:
    taken = _parse_fields(document, HistoryDrive, ("serial", "wwid"), ("name", "serial", "wwid"))
    drive = HistoryDrive(**taken)  # type: ignore[arg-type]
    if (
        not 0 < drive.sectors < _MAX_SECTOR
        or not 0 < drive.granule < _MAX_SECTOR
        or not 0 <= drive.offset < _MAX_SECTOR
    ):
        raise BadInput("invalid drive size or granule")
    return drive


def _parse_checkpoint(document: object) -> Checkpoint:
    taken = _parse_fields(document, Checkpoint, ("diskseq", "written_slack", "discarded_slack"), ("boot",))
    forgotten, notes = taken["forgotten"], taken["notes"]
    if not isinstance(forgotten, dict) or not all(_is_number(count) for count in forgotten.values()):
        raise BadInput(f"invalid forgotten in Checkpoint: {forgotten!r:.60}")
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise BadInput(f"invalid notes in Checkpoint: {notes!r:.60}")
    taken["notes"] = tuple(notes)
    return Checkpoint(**taken)  # type: ignore[arg-type]
