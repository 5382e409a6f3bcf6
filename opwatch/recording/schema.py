"""Create and check the tables of a recording, as described in docs/recording-format.md."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

APPLICATION_ID = 0x6F707731  # "opw1"
VERSION = 1
# Small pages, because blobs of some KiB are stored in chains of pages whose last page is half empty.
PAGE_BYTES = 512
# Places in `tail` of rows without a disk: an entry's other values, and its anchor.
OTHERS, ANCHOR = -1, -2

TABLES = {
    "header": ("name TEXT NOT NULL", "value NOT NULL"),
    "shapes": ("class TEXT NOT NULL", "fields TEXT NOT NULL"),
    "facts": ("fact INTEGER PRIMARY KEY", "class TEXT NOT NULL", "body TEXT NOT NULL"),
    "contents": (
        "content INTEGER PRIMARY KEY",
        "base INTEGER",
        "size INTEGER NOT NULL",
        "body BLOB NOT NULL",
    ),
    "entries": (
        "number INTEGER PRIMARY KEY",
        "kind TEXT NOT NULL",
        "mono_ns INTEGER NOT NULL",
        "body TEXT NOT NULL",
    ),
    "events": (
        "number INTEGER NOT NULL",
        "mono_ns INTEGER NOT NULL",
        "kind TEXT NOT NULL",
        "words TEXT NOT NULL",
        "status INTEGER",
    ),
    "blocks": (
        "block INTEGER PRIMARY KEY",
        "first INTEGER NOT NULL",
        "last INTEGER NOT NULL",
        "begin_ns INTEGER NOT NULL",
        "end_ns INTEGER NOT NULL",
        "anchors BLOB NOT NULL",
        "others BLOB NOT NULL",
        # The number of the block's frames, so that a missing frame is noticed.
        "frames INTEGER NOT NULL",
    ),
    "frames": (
        "block INTEGER NOT NULL",
        "place INTEGER NOT NULL",
        "fact INTEGER NOT NULL",
        "samples INTEGER NOT NULL",
        "body BLOB NOT NULL",
    ),
    "counts": (
        "mono_ns INTEGER NOT NULL",
        "place INTEGER NOT NULL",
        "op TEXT NOT NULL",
        "completed INTEGER",
        "bytes INTEGER",
        "sum_ns INTEGER",
        "max_ns INTEGER",
        "errors INTEGER",
        "issued INTEGER",
    ),
    "slow": (
        "request INTEGER PRIMARY KEY",
        "place INTEGER NOT NULL",
        "mono_ns INTEGER NOT NULL",
        "op TEXT NOT NULL",
        "sector INTEGER",
        "bytes INTEGER NOT NULL",
        "latency_ns INTEGER NOT NULL",
        "queue_ns INTEGER",
        "submitter TEXT",
        "pid INTEGER",
        "name TEXT",
        "cgroup_number INTEGER",
        "cgroup TEXT",
    ),
    "clocks": ("mono_ns INTEGER NOT NULL", "wall_ns INTEGER NOT NULL", "slack_ns INTEGER NOT NULL"),
    "tail": (
        "number INTEGER NOT NULL",
        "place INTEGER NOT NULL",
        "fact INTEGER NOT NULL",
        "body BLOB NOT NULL",
    ),
    # A disk's history (`trim record`): the newest checkpoint, and all changes to its map since it was empty.
    "checkpoints": ("number INTEGER PRIMARY KEY", "first INTEGER NOT NULL", "body TEXT NOT NULL"),
    "changes": ("number INTEGER PRIMARY KEY", "runs BLOB NOT NULL"),
    "trailer": (
        "mono_ns INTEGER NOT NULL",
        "reason TEXT NOT NULL",
        "entries INTEGER NOT NULL",
        "left_out INTEGER NOT NULL",
    ),
}
# The last column of a table: a checksum of all others. `counts` has no checksum, because only SQL users read
# `counts` and the frames hold the same values.
CHECK = "crc INTEGER NOT NULL"
_UNCHECKED = "counts"
INDEXES = {"frames_of_block": ("frames", "block"), "tail_of_entry": ("tail", "number")}
# Names in `header`: the first row of every file, and the drive of a history.
FORMAT, HISTORY = "format", "history"
FORMAT_ROW = (FORMAT, "opwatch recording")
# Kinds of events that are parsed: another program's file, and the start and end of a phase.
FILE, PHASE_BEGAN, PHASE_ENDED = "file", "phase began", "phase ended"
NOTE = "note"
# CPU time of the command, including its children.
COMMAND_CPU = "command CPU"
# The arguments of `opwatch waf`, and the samples at the start and end of its interval.
WAF, WAF_BEGIN, WAF_END = "waf", "waf begin", "waf end"
# The result of `opwatch trim audit` for a filesystem or device with the file of its evidence, or the reason
# for no result.
AUDIT, NO_AUDIT = "trim audit", "no trim audit"
# A measurement of `opwatch writes`, whose readings are in files.
WRITES = "writes"
# An entry of the journal of a recorded sweep: its request, the outcome of a level, its end.
SWEEP = "sweep"
# Counters of each operation in `counts`.
COUNTED = ("completed", "bytes", "sum_ns", "max_ns", "errors", "issued")


def list_declarations(name: str) -> tuple[str, ...]:
    """Return the column declarations of a table."""
    return (*TABLES[name], CHECK) if has_check(name) else TABLES[name]


def has_check(name: str) -> bool:
    """Return true if rows of this table have a checksum."""
    return name != _UNCHECKED


def build_create_table(name: str) -> str:
    """Return the statement that creates a table, as stored by SQLite."""
    return f"CREATE TABLE {name} ({', '.join(list_declarations(name))})"


def build_create_index(name: str) -> str:
    table, column = INDEXES[name]
    return f"CREATE INDEX {name} ON {table} ({column})"


def list_columns(name: str) -> tuple[str, ...]:
    return tuple(column.split()[0] for column in list_declarations(name))


@cache
def build_insert(name: str) -> str:
    """Return the statement that adds a row to a table."""
    return f"INSERT INTO {name} VALUES ({', '.join('?' * len(list_declarations(name)))})"


def add_row_check(table: str, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row with its checksum, or the row if this table has no checksums."""
    return (*row, compute_row_check(table, row)) if has_check(table) else row


def compute_row_check(table: str, values: Iterable[object]) -> int:
    """Return the checksum of a row: CRC-32 of the table's name, then of each value's type, length in bytes,
    and bytes."""
    crc, small = zlib.crc32(table.encode()), ""
    for value in values:
        if isinstance(value, bytes | str):
            kind, raw = ("b", value) if isinstance(value, bytes) else ("t", value.encode("utf-8", "replace"))
            crc = zlib.crc32(raw, zlib.crc32(f"{small}{kind}{len(raw)}:".encode(), crc))
            small = ""
        else:
            text = str(value)
            small += f"{'n' if value is None else 'i'}{len(text)}:{text}"
    return zlib.crc32(small.encode(), crc)


def format_json(plain: Any) -> str:  # noqa: ANN401
    """Return compact JSON. Names that are not UTF-8 are escaped, and read back unchanged."""
    return json.dumps(plain, separators=(",", ":"))


def replace_invalid(text: str) -> str:
    """Return a text that SQLite accepts, with invalid UTF-8 replaced."""
    return text.encode("utf-8", "replace").decode()
