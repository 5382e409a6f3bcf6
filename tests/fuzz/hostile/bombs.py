"""Recordings that are valid for SQLite, with correct checksums, but expand to far more data."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from typing import Any

from opwatch.recording.coding.blocks import compress_streams
from opwatch.recording.coding.contents import deflate_content
from opwatch.recording.schema import FILE, NOTE, OTHERS, VERSION, add_row_check, list_columns
from opwatch.samples.entries import DiskAdded
from tests.unit.support.recordings import update_checksums
from tests.unit.support.runs import GeneratedRun, S

from .long_runs import make_long_minute, shift_sample

_MIB = 1 << 20
_MAX_VALID = 3000


def put_rows(connection: sqlite3.Connection, table: str, rows: Any) -> None:  # noqa: ANN401
    """Add rows with their checksums."""
    names = list_columns(table)
    marks = ", ".join("?" * len(names))
    checked = (add_row_check(table, tuple(row)) for row in rows)
    connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", checked)


class Bombs:
    """Builds recordings from valid ones. Sizes fall on both sides of each limit."""

    def __init__(self, chance: random.Random, small: bytes) -> None:
        self._chance, self._small = chance, small
        self._sample = self._make_begin().sample
        self._bodies: dict[tuple[int, ...], bytes] = {}
        self.changes: dict[str, Callable[[sqlite3.Connection], None]] = {
            name.removeprefix("_put_"): getattr(self, name) for name in dir(self) if name.startswith("_put_")
        }

    def _make_begin(self) -> DiskAdded:
        return GeneratedRun(4).add_disk(0, "nvme0n1")

    def make_recording(self, name: str) -> bytes:
        """Return a recording of this kind."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        try:
            connection.deserialize(self._small)
            connection.execute("BEGIN")
            self.changes[name](connection)
            connection.execute("COMMIT")
            return bytes(connection.serialize())
        finally:
            connection.close()

    def _choose_size(self, most: int) -> int:
        """Return a number up to `most`, evenly distributed on a logarithmic scale."""
        return min(int(2 ** (self._chance.random() * most.bit_length())), most)

    def _compress_body(self, *sizes: int) -> bytes:
        if sizes not in self._bodies:
            self._bodies[sizes] = compress_streams((b"", *map(bytes, sizes)))
        return self._bodies[sizes]

    def _put_streams(self, connection: sqlite3.Connection) -> None:
        """Many disks with long streams."""
        size = self._chance.choice((1 << 10, 100 << 10, _MIB, 4 * _MIB, 5 * _MIB))
        [(block, fact)] = connection.execute("SELECT block, fact FROM frames LIMIT 1").fetchall()
        places = self._choose_size(600)
        connection.execute("DELETE FROM frames WHERE block = ?", (block,))
        connection.execute("UPDATE blocks SET frames = ? WHERE block = ?", (places, block))
        body = self._compress_body(*[size] * 4)
        put_rows(connection, "frames", ((block, place, fact, 1, body) for place in range(places)))
        update_checksums(connection)

    def _put_samples(self, connection: sqlite3.Connection) -> None:
        """Very many valid samples."""
        self._clear_tables(connection)
        [(fact,)] = connection.execute(
            "SELECT fact FROM facts WHERE class = 'WatchedDisk' LIMIT 1"
        ).fetchall()
        is_short = self._chance.random() < 0.8
        blocks, first, sample, grows = self._choose_size(6), 1, self._sample, self._chance.choice((0, 1, 9))
        for block in range(1, blocks + 1):
            # Valid data take time: an hour of samples is no attack.
            count = (
                max(self._choose_size(_MAX_VALID // blocks), 8)
                if is_short
                else max(self._choose_size(70_000), 17_000)
            )
            step_ns = self._chance.choice((10**6, S, S, 60 * S, 1 << 40, 1 << 55))
            body, anchors, end_ns = make_long_minute(sample, first, count, step_ns, grows=grows)
            row = (block, first, first + count - 1, 0, min(end_ns, (1 << 63) - 1), anchors, b"", 1)
            put_rows(connection, "blocks", [row])
            put_rows(connection, "frames", [(block, 0, fact, count, body)])
            if block == 1:
                self._insert_start(connection)
            first += count
            sample = shift_sample(sample, count * step_ns)

    def _clear_tables(self, connection: sqlite3.Connection) -> None:
        for table in ("blocks", "frames", "entries", "tail", "trailer"):
            connection.execute(f"DELETE FROM {table}")

    def _insert_start(self, connection: sqlite3.Connection) -> None:
        """Make the first sample the start of a disk."""
        [(names,)] = connection.execute("SELECT fields FROM shapes WHERE class = 'DiskAdded'").fetchall()
        values = {"place": 0, "sample": 0, "drive": None, "discards": None, "arrival": None, "text": ""}
        body = json.dumps([values.get(name) for name in json.loads(names)])
        put_rows(connection, "entries", [(1, "DiskAdded", 0, body)])

    def _put_layout(self, connection: sqlite3.Connection) -> None:
        """Samples with very many counters."""
        names = [f"x{number}" for number in range(self._choose_size(1100))]
        which = self._chance.choice(("ops", "counters"))
        connection.execute("UPDATE header SET value = ? WHERE name = ?", (json.dumps(names), which))
        update_checksums(connection)

    def _put_anchors(self, connection: sqlite3.Connection) -> None:
        count = self._choose_size(70_000) + 8
        _, anchors, _ = make_long_minute(self._sample, 1, count, S)
        connection.execute("UPDATE blocks SET anchors = ?", (anchors,))
        update_checksums(connection)

    def _replace_others(self, connection: sqlite3.Connection, raw: bytes) -> None:
        connection.execute("UPDATE blocks SET others = ? WHERE block = 1", (deflate_content(raw),))
        update_checksums(connection)

    def _put_bodies(self, connection: sqlite3.Connection) -> None:
        """A minute with many entries, or with many invalid ones."""
        count = self._choose_size(1_500_000)
        one = self._chance.choice((b"[%d,", b'[%d,"IntervalEnded",[]]', b"\n", b'[%d,"CountersRead",1]'))
        has_number = b"%d" in one
        raw = b"\n".join(one % number if has_number else one for number in range(1, count + 1))
        self._replace_others(connection, raw)

    def _put_document(self, connection: sqlite3.Connection) -> None:
        """Large documents in place of entries."""
        [(first,)] = connection.execute("SELECT first FROM blocks WHERE block = 1").fetchall()
        part = self._chance.choice(("[]", "{}", '[[0,"",[]]]', "0", '"x"', "[[[[]]]]"))
        size, lines = self._choose_size(1_100_000), []
        kind = self._chance.choice(("IntervalEnded", "CountersRead", "SlowRequestsSeen"))
        for number in range(self._choose_size(17)):
            value = "[" + ",".join([part] * (size // (len(part) + 1))) + "]"
            width = {"IntervalEnded": 3, "CountersRead": 1, "SlowRequestsSeen": 4}[kind]
            values = "[" + ",".join([value] * width)[: 1 << 20] + "]"
            lines.append(f'[{first + number},"{kind}",{values}]'.encode())
        self._replace_others(connection, b"\n".join(lines))

    def _put_slow(self, connection: sqlite3.Connection) -> None:
        """Entries that refer to the same slow requests, or to very many."""
        [(first,)] = connection.execute("SELECT first FROM blocks WHERE block = 1").fetchall()
        rows, entries, refs = self._choose_size(20_000), self._choose_size(17), self._choose_size(66_000)
        slow = (
            (n, 0, 7000 * S, "read", 0, 4096, 10**8, None, None, None, None, None, None)
            for n in range(1, rows + 1)
        )
        put_rows(connection, "slow", slow)
        lines = []
        is_sound = self._chance.random() < 0.5
        refs = min(refs, rows // entries) if is_sound else refs
        for number in range(entries):
            numbers = list(range(1 + number * refs, 1 + (number + 1) * refs)) if is_sound else [1] * refs
            values = [7000 * S, 10**7, [[0, 1000 + refs * (number + 1)]], numbers]
            lines.append(
                json.dumps([first + number, "SlowRequestsSeen", values], separators=(",", ":")).encode()
            )
        self._replace_others(connection, b"\n".join(lines))

    def _put_answers(self, connection: sqlite3.Connection) -> None:
        """Polls of a drive with very many or very long answers."""
        [(first,)] = connection.execute("SELECT first FROM blocks WHERE block = 1").fetchall()
        size, count = self._chance.choice((512, 1 << 16, _MIB, 4 * _MIB)), self._choose_size(300)
        body = self._bodies.setdefault((-size,), deflate_content(bytes(size)))
        put_rows(connection, "contents", ((1000 + n, None, size, body) for n in range(count)))
        texts = connection.execute(
            "SELECT body FROM tail WHERE body LIKE '%\"CountersRead\"%' LIMIT 1"
        ).fetchall()
        text = texts[0][0] if texts else self._find_poll(connection)
        if text is None:
            return
        document = json.loads(text)
        [(names,)] = connection.execute("SELECT fields FROM shapes WHERE class = 'FirmwareSample'").fetchall()
        at = json.loads(names).index("answers")
        sample = document[2][0]
        if not sample[at]:
            return
        command = sample[at][0][0]
        refs = self._choose_size(60_000)
        sample[at] = [[command, [0, 1000 + n % count]] for n in range(refs)]
        lines = []
        for number in range(self._choose_size(17)):
            document[0] = first + number
            lines.append(json.dumps(document, separators=(",", ":")).encode()[: 1 << 20])
        self._replace_others(connection, b"\n".join(lines))

    def _find_poll(self, connection: sqlite3.Connection) -> bytes | None:
        import zlib

        for (raw,) in connection.execute("SELECT others FROM blocks WHERE length(others)").fetchall():
            for line in zlib.decompress(raw, -15).split(b"\n"):
                if b'"CountersRead"' in line:
                    return line
        return None

    def _put_file(self, connection: sqlite3.Connection) -> None:
        """A fio report or audit evidence that needs much memory."""
        part = self._chance.choice((b"{}", b"[]", b'{"a":{}}', b"0", b'"x"', b'{"jobname":"a","read":{}}'))
        count = self._choose_size(3_000_000)
        inside = b",".join([part] * count)
        raw = b'{"fio version":"fio-3.33","jobs":[' + inside + b"]}"
        name = "fio/report.json"
        if self._chance.random() < 0.4:
            name, raw = "audit", b'{"shapes":[],"audit":[' + inside + b"]}"
            words = json.dumps({"subject": "/x", "verdict": "ACCEPTED", "file": name})
            put_rows(connection, "events", [(0, 0, "trim audit", words, None)])
        rows = []
        for number, at in enumerate(range(0, len(raw), 4 * _MIB)):
            piece = raw[at : at + 4 * _MIB]
            rows.append((2000 + number, None, len(piece), deflate_content(piece)))
        put_rows(connection, "contents", rows)
        words = json.dumps({"name": name, "size": len(raw), "contents": [row[0] for row in rows]})
        put_rows(connection, "events", [(0, 0, FILE, words, None)])

    def _put_clocks(self, connection: sqlite3.Connection) -> None:
        put_rows(connection, "clocks", ((at, 10**18 + 2 * at, 1) for at in range(self._choose_size(400_000))))
        self._put_notes(connection)

    def _put_notes(self, connection: sqlite3.Connection) -> None:
        kind = self._chance.choice((NOTE, FILE, "phase began", "phase ended", "command CPU", "waf", "x"))
        words = self._chance.choice(("a", "a note" * 50, "{}", '{"name":"fio/x.log","size":0,"contents":[]}'))
        count = self._choose_size(100_000)
        put_rows(connection, "events", ((1, 5 * at, kind, words, None) for at in range(1, count)))

    def _put_phases(self, connection: sqlite3.Connection) -> None:
        """Very many nested phases."""
        count = self._choose_size(30_000)
        put_rows(connection, "events", ((1, at, "phase began", str(at % 977), None) for at in range(count)))
        put_rows(
            connection, "events", ((1, count + at, "phase ended", str(at % 991), None) for at in range(count))
        )

    def _put_entries(self, connection: sqlite3.Connection) -> None:
        """Very many rare entries."""
        self._clear_tables(connection)
        count = self._choose_size(300_000)
        kind, body = self._chance.choice(
            (
                ("ProgramsSkipped", "[5]"),
                ("CountersRead", "[]"),
                ("x", "[]"),
                ("RunEnded", "[[],[],[],false,[]]"),
            )
        )
        put_rows(connection, "entries", ((at, kind, at, body) for at in range(1, count)))
        if self._chance.random() < 0.5:
            put_rows(connection, "blocks", [(1, 1, count, 0, 9, b"", b"", 0)])

    def _put_blocks(self, connection: sqlite3.Connection) -> None:
        """Very many empty minutes, or minutes with one entry."""
        self._clear_tables(connection)
        count = self._choose_size(200_000)
        put_rows(connection, "blocks", ((at, at, at, at, at, b"", b"", 0) for at in range(1, count)))

    def _put_tail(self, connection: sqlite3.Connection) -> None:
        """Very many uncompressed rows."""
        self._clear_tables(connection)
        count, kind = self._choose_size(300_000), self._chance.random()
        if kind < 0.4:
            put_rows(connection, "tail", ((at, 0, 1, b"\0\0\0\0\0") for at in range(1, count)))
        elif kind < 0.7:
            put_rows(connection, "tail", ((at, OTHERS, 0, b"[%d,1]" % at) for at in range(1, count)))
        else:
            put_rows(connection, "tail", ((at, at, 1, b"\0\0\0\0\0") for at in range(1, count)))

    def _put_facts(self, connection: sqlite3.Connection) -> None:
        count = self._choose_size(70_000)
        text = json.dumps("x" * self._chance.choice((1, 100, 1000)))
        put_rows(connection, "facts", ((at, "str", text) for at in range(1000, 1000 + count)))

    def _put_header(self, connection: sqlite3.Connection) -> None:
        size, count = self._choose_size(2 * _MIB), self._choose_size(300)
        count = min(count, 24 * _MIB // size)
        text = self._chance.choice(("x", "\x1b", "\u20ac")) * size
        put_rows(connection, "header", ((f"x{at}", text) for at in range(count)))

    def _put_events_large(self, connection: sqlite3.Connection) -> None:
        size = self._choose_size(8 * _MIB)
        text = "x" * size
        put_rows(
            connection,
            "events",
            ((1, 1, NOTE, text, None) for _ in range(min(self._choose_size(30), 24 * _MIB // size))),
        )

    def _put_places(self, connection: sqlite3.Connection) -> None:
        """Many disks, all valid."""
        self._clear_tables(connection)
        [(fact,)] = connection.execute(
            "SELECT fact FROM facts WHERE class = 'WatchedDisk' LIMIT 1"
        ).fetchall()
        [(names,)] = connection.execute("SELECT fields FROM shapes WHERE class = 'DiskAdded'").fetchall()
        places, grows = self._choose_size(500), self._chance.choice((0, 1))
        count = (
            max(self._choose_size(_MAX_VALID // places), 8)
            if self._chance.random() < 0.8
            else 17_000 // places + 8
        )
        rows = []
        for place in range(places):
            body, _, _ = make_long_minute(self._sample, 1 + place, count, S, then=1 + places, grows=grows)
            rows.append((1, place, fact, count, body))
            values = {"place": place, "sample": place, "text": ""}
            entry = json.dumps([values.get(name) for name in json.loads(names)])
            put_rows(connection, "entries", [(1 + place, "DiskAdded", 0, entry)])
        last = places + count - 1
        _, anchors, _ = make_long_minute(self._sample, 1, last, S)
        put_rows(connection, "blocks", [(1, 1, last, 0, 9, anchors, b"", len(rows))])
        put_rows(connection, "frames", rows)


assert VERSION == 1, "these recordings follow version 1"
