"""The history file: a map and what is known of it, then changes to it, each frame with its checksum. Pure.

A frame is written as a whole or does not count: what a crash leaves of the last one is cut off."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields

from opwatch.trim.sectormap import Run, SectorMap, State

MAGIC = b"opwhist1"
_FRAME = struct.Struct("<II")  # length of what follows, and its CRC-32
_TEXT = struct.Struct("<I")  # length of the JSON; runs follow it
_RUN = struct.Struct("<QQB")
_FAR = 1 << 41


@dataclass(frozen=True, slots=True)
class Drive:
    """Whose history it is. `granule` and `offset` are in sectors. The serial number and the wwid are None for
    disks that have none: such a disk is known by its name."""

    name: str
    serial: str | None
    wwid: str | None
    sectors: int
    granule: int
    offset: int


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Saved:
    """What a file says. `whole_bytes` is the length up to the end of its last whole frame."""

    drive: Drive
    look: Look
    map: SectorMap
    whole_bytes: int


def _frame(text: dict[str, object], runs: Iterable[Run]) -> bytes:
    raw = json.dumps(text, separators=(",", ":")).encode()
    body = b"".join((_TEXT.pack(len(raw)), raw, *(_RUN.pack(*run) for run in runs)))
    return _FRAME.pack(len(body), zlib.crc32(body)) + body


def snapshot(drive: Drive, look: Look, map_: SectorMap) -> bytes:
    """A whole file."""
    known = (run for run in map_.runs() if run[2] != State.UNKNOWN)
    return MAGIC + _frame({"drive": asdict(drive), "look": asdict(look)}, known)


def delta(look: Look, runs: Iterable[Run]) -> bytes:
    """A frame for the end of a file."""
    return _frame({"look": asdict(look)}, runs)


def load(raw: bytes) -> Saved:
    """What a file says, up to the first frame that is torn, damaged or makes no sense: a crash may leave
    anything at the end. ValueError when there is no frame before that."""
    if raw[: len(MAGIC)] != MAGIC:
        raise ValueError("it does not begin as a history does")
    at, saved = len(MAGIC), None
    while (body := _body(raw, at)) is not None:
        try:
            text, runs = _parse(body)
            look = _look(text.get("look"))
            drive = saved.drive if saved else _drive(text.get("drive"))
        except ValueError:
            if saved is None:
                raise
            break
        map_ = saved.map if saved else SectorMap(drive.sectors)
        for start, end, state in runs:
            map_.put(start, end, state)
        at += _FRAME.size + len(body)
        saved = Saved(drive, look, map_, at)
    if saved is None:
        raise ValueError("its first frame is damaged")
    return saved


def _body(raw: bytes, at: int) -> bytes | None:
    """The next frame; None at the end, or when it is not whole."""
    if at + _FRAME.size > len(raw):
        return None
    length, checksum = _FRAME.unpack_from(raw, at)
    body = raw[at + _FRAME.size : at + _FRAME.size + length]
    return body if len(body) == length and zlib.crc32(body) == checksum else None


def _parse(body: bytes) -> tuple[dict[str, object], Iterable[Run]]:
    if len(body) < _TEXT.size:
        raise ValueError("a frame is too short")
    [length] = _TEXT.unpack_from(body)
    runs = body[_TEXT.size + length :]
    text = json.loads(body[_TEXT.size : _TEXT.size + length])
    if not isinstance(text, dict) or len(runs) % _RUN.size:
        raise ValueError("a frame makes no sense")
    found = list(_RUN.iter_unpack(runs))
    if any(start >= end or end > _FAR or state > max(State) for start, end, state in found):
        raise ValueError("a run makes no sense")
    return text, found


def _take(found: object, kind: type, optional: tuple[str, ...], texts: tuple[str, ...]) -> dict[str, object]:
    """The fields of a dataclass whose other fields are numbers. Fields that we do not know are left out."""
    if not isinstance(found, dict):
        raise ValueError(f"there is no {kind.__name__}")
    taken: dict[str, object] = {}
    for each in fields(kind):
        value = found.get(each.name)
        right = isinstance(value, str) if each.name in texts else type(value) is int and abs(value) < 1 << 63
        if (
            each.name not in ("forgotten", "notes")
            and not right
            and (value is not None or each.name not in optional)
        ):
            raise ValueError(f"{each.name} of its {kind.__name__} is {value!r}")
        taken[each.name] = value
    return taken


def _drive(found: object) -> Drive:
    taken = _take(found, Drive, ("serial", "wwid"), ("name", "serial", "wwid"))
    drive = Drive(**taken)  # type: ignore[arg-type]
    if not 0 < drive.sectors < _FAR or drive.granule < 1 or drive.offset < 0:
        raise ValueError("its drive makes no sense")
    return drive


def _look(found: object) -> Look:
    taken = _take(found, Look, ("diskseq", "written_slack", "discarded_slack"), ("boot",))
    forgotten, notes = taken["forgotten"], taken["notes"]
    if not isinstance(forgotten, dict) or not isinstance(notes, list):
        raise ValueError("its look makes no sense")
    taken["forgotten"] = {str(why): int(count) for why, count in forgotten.items()}
    taken["notes"] = tuple(map(str, notes))
    return Look(**taken)  # type: ignore[arg-type]
