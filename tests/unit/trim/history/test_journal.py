"""The history file: its state after a crash or damage, and exclusive writing."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from opwatch.collectors.history.file import HistoryFile, read_history
from opwatch.errors import BadInput, OpwatchError, RefusedError
from opwatch.trim.history import journal
from opwatch.trim.history.journal import Checkpoint, HistoryDrive
from opwatch.trim.history.sectormap import Run, SectorMap, SectorState
from tests.fuzz import history as fuzz

FIXTURES = Path(__file__).parents[3] / "fixtures"
DRIVE = HistoryDrive("sda", "S1", None, 4096, 8, 0)
CHECKPOINT = Checkpoint(1, 2, "boot", 3, 4, 5, 6, 0, None, 7, {"a reason": 1}, ("a note",))


def make_frames(seed: int, count: int) -> list[tuple[bytes, list[Run], Checkpoint]]:
    """Return the pieces of a file, with the runs and the poll that each one leaves."""
    rng, map_ = random.Random(seed), SectorMap(DRIVE.sectors)
    runs = []
    for number in range(count):
        map_.log = []
        for _ in range(rng.randrange(4)):
            start = rng.randrange(DRIVE.sectors)
            map_.set_state(start, start + rng.randrange(1, 200), rng.choice(list(SectorState)))
        look = replace(CHECKPOINT, written=number)
        raw = journal.encode_delta(look, map_.log) if number else journal.encode_snapshot(DRIVE, look, map_)
        runs.append((raw, list(map_.iter_runs()), look))
    return runs


def join_ranges(map_: SectorMap) -> list[Run]:
    """Return the runs, with equal neighbours joined."""
    runs: list[Run] = []
    for start, end, state in map_.iter_runs():
        if runs and runs[-1][2] == state:
            runs[-1] = (runs[-1][0], end, state)
        else:
            runs.append((start, end, state))
    return runs


@pytest.mark.parametrize("seed", range(3))
def test_a_file_cut_at_any_byte_has_its_whole_frames(seed: int) -> None:
    pieces = make_frames(seed, 6)
    raw = b"".join(piece for piece, _, _ in pieces)
    ends = [sum(len(piece) for piece, _, _ in pieces[: at + 1]) for at in range(len(pieces))]
    for cut in range(len(raw) + 1):
        whole = sum(end <= cut for end in ends)
        if not whole:
            with pytest.raises(ValueError):
                journal.parse_history(raw[:cut])
            continue
        saved = journal.parse_history(raw[:cut])
        assert saved.whole_bytes == ends[whole - 1]
        assert (saved.drive, saved.look) == (DRIVE, pieces[whole - 1][2])
        assert list(saved.map.iter_runs()) == pieces[whole - 1][1]


def test_changed_byte_ends_the_readable_part() -> None:
    pieces = make_frames(9, 4)
    raw = bytearray(b"".join(piece for piece, _, _ in pieces))
    first = len(pieces[0][0])
    for at in range(first, len(raw)):
        raw[at] ^= 0x20
        saved = journal.parse_history(bytes(raw))
        assert first <= saved.whole_bytes <= at
        raw[at] ^= 0x20


@pytest.mark.parametrize(
    "tail",
    [
        bytes(1),
        bytes(8),
        bytes(4096),
        b"\xff" * 4096,
        random.Random(7).randbytes(4096),
        journal._encode_frame({}, []),
    ],
    ids=["a zero", "eight zeros", "a page of zeros", "ones", "garbage", "a frame without a look"],
)
def test_bytes_after_the_last_frame_end_the_file(tail: bytes) -> None:
    """After a crash the file may end in zeros, which have a correct checksum: the CRC of no bytes is 0."""
    pieces = make_frames(4, 5)
    for count in range(1, len(pieces) + 1):
        raw = b"".join(piece for piece, _, _ in pieces[:count])
        saved = journal.parse_history(raw + tail)
        assert saved.whole_bytes == len(raw)
        assert (list(saved.map.iter_runs()), saved.look) == pieces[count - 1][1:]
    with pytest.raises(ValueError):
        journal.parse_history(journal.MAGIC + tail)


def test_good_files_are_read_and_bad_files_refused() -> None:
    saved = journal.parse_history((FIXTURES / "good" / "trim" / "disk.history").read_bytes())
    assert (saved.drive.name, saved.drive.sectors, saved.drive.granule) == ("loop0", 131072, 8)
    assert saved.map.collect_extents(SectorState.WRITTEN).total_bytes == 7 * 4096
    assert saved.map.collect_extents(SectorState.TRIMMED).total_bytes == 131072 * 512 - 7 * 4096 - 4096
    bad = sorted((FIXTURES / "bad" / "trim").glob("*.history"))
    assert len(bad) >= 3
    for path in bad:
        with pytest.raises(ValueError):
            journal.parse_history(path.read_bytes())


@pytest.mark.parametrize("seed", range(3))
def test_fuzzed_journals_are_read_or_refused(seed: int) -> None:
    fuzz.run(3_000, seed)


# --- the file on disk ---


def test_history_file_is_written_read_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "x.history"
    file = HistoryFile(path)
    assert (file.saved, file.damage) == (None, None)
    pieces = make_frames(1, 5)
    file.replace([pieces[0][0]])
    for piece, runs, look in pieces[1:]:
        file.append_frames(piece)
        saved, alive = read_history(path)
        assert (list(saved.map.iter_runs()), saved.look, alive) == (runs, look, True)
    with pytest.raises(RefusedError, match="another opwatch"):
        HistoryFile(path)
    assert not file.has_grown
    file.append_frames(journal.encode_delta(CHECKPOINT, [(0, 8, SectorState.WRITTEN)] * 100_000))
    assert file.has_grown
    file.replace([pieces[0][0]])
    with pytest.raises(RefusedError, match="another opwatch"):
        HistoryFile(path)
    file.close()
    saved, alive = read_history(path)
    assert not alive
    assert [file.name for file in path.parent.iterdir()] == ["x.history"]
    assert path.stat().st_mode & 0o077 == 0


def test_other_files_are_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_bytes(b"a letter")
    with pytest.raises(RefusedError, match="not a history"):
        HistoryFile(path)
    with pytest.raises(OpwatchError, match="not a readable history"):
        read_history(path)
    assert path.read_bytes() == b"a letter"
    path.write_bytes(journal.MAGIC + b"torn")
    file = HistoryFile(path)
    assert file.saved is None and file.damage
    file.close()
    with pytest.raises(OpwatchError, match="No such file"):
        read_history(tmp_path / "none")


@pytest.mark.parametrize("dangling", [False, True])
def test_planted_symlink_is_not_written_through(dangling: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if not dangling:
        target.write_bytes(make_frames(2, 1)[0][0])
    link.symlink_to("target")
    with pytest.raises(RefusedError, match="is a link"):
        HistoryFile(link)
    assert {file.name for file in tmp_path.rglob("*")} == ({"link"} if dangling else {"target", "link"})


def test_planted_hard_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "name").hardlink_to(tmp_path / "target")
    with pytest.raises(RefusedError, match="2 hard links"):
        HistoryFile(tmp_path / "name")


def test_rewrite_runs_while_changes_are_appended(tmp_path: Path) -> None:
    """Changes appended during a rewrite are kept, and a reader always sees a complete file."""
    path, gate = tmp_path / "x", threading.Event()
    pieces = make_frames(3, 4)

    def yield_slowly() -> Iterator[bytes]:
        yield pieces[0][0]
        gate.wait(60)

    file = HistoryFile(path)
    file.replace([pieces[0][0]])
    file.begin_replacing(yield_slowly())
    for piece, runs, look in pieces[1:]:
        file.append_frames(piece)
        file.finish_replacing()
        assert file.is_replacing
        saved, _ = read_history(path)
        assert (list(saved.map.iter_runs()), saved.look) == (runs, look)
    gate.set()
    while file.is_replacing:
        file.finish_replacing()
    assert file.is_unchanged
    file.append_frames(journal.encode_delta(CHECKPOINT, []))
    saved, alive = read_history(path)
    assert (list(saved.map.iter_runs()), saved.look, alive) == (pieces[-1][1], CHECKPOINT, True)
    with pytest.raises(RefusedError, match="another opwatch"):
        HistoryFile(path)
    file.begin_replacing(iter([pieces[0][0]] * 1000))
    file.close()
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


# --- invented content ---


def encode_frame(
    text: str, runs: list[tuple[int, int, int]] | None = None, before: bytes = journal.MAGIC
) -> bytes:
    raw = text.encode()
    packed = b"".join(struct.pack("<QQB", *run) for run in runs or [])
    body = struct.pack("<I", len(raw)) + raw + packed
    return before + struct.pack("<II", len(body), zlib.crc32(body)) + body


GOOD = json.dumps({"drive": asdict(DRIVE), "look": asdict(CHECKPOINT)})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"forgotten": {"a reason": 1}', '"forgotten": null'),
        ('{"a reason": 1}', '{"a reason": null}'),
        ('{"a reason": 1}', '{"a reason": 1e999}'),
        ('"wall_ns": 2', '"wall_ns": 1e999'),
        ('"wall_ns": 2', '"wall_ns": ' + "9" * 5000),
        ('"sectors": 4096', '"sectors": NaN'),
        ('["a note"]', "[" * 50_000),
        ('["a note"]', "[null]"),
        ('"granule": 8', '"granule": 0'),
        ('"look": {', '"more": true, "look": {'),
    ],
    ids=range(10),
)
def test_invalid_frame_is_reported_with_its_place(old: str, new: str, tmp_path: Path) -> None:
    assert old in GOOD
    path = tmp_path / "x"
    path.write_bytes(encode_frame(GOOD.replace(old, new)))
    with pytest.raises(OpwatchError, match=rf"{path} .*(frame 1 at byte 8: |the last frame \(1\) has)"):
        read_history(path)
    # After a valid frame, an invalid frame ends the file.
    saved = journal.parse_history(encode_frame(GOOD.replace(old, new), before=encode_frame(GOOD)))
    if old.startswith(('"sectors', '"granule')):  # only the first frame identifies the disk
        assert (saved.look, saved.rest) == (CHECKPOINT, None)
    else:
        assert (saved.look, saved.whole_bytes) == (CHECKPOINT, len(encode_frame(GOOD)))
        assert saved.rest


def test_run_over_the_largest_disk_is_cheap() -> None:
    sectors = (1 << 41) - 1
    text = GOOD.replace('"sectors": 4096', f'"sectors": {sectors}')
    begin = time.process_time()
    tracemalloc.start()
    saved = journal.parse_history(encode_frame(text, [(0, sectors, SectorState.WRITTEN)]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (saved.map.collect_extents(SectorState.WRITTEN).total_bytes, saved.map.pieces) == (
        sectors * 512,
        (1 << 13) + 1,
    )
    assert peak < 64 << 20
    with pytest.raises(BadInput, match="too many times"):
        journal.parse_history(encode_frame(text, [(0, sectors, at % 2 + 1) for at in range(100)]))
    assert time.process_time() - begin < 10


def test_a_large_map_is_several_frames_that_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "_CHUNK_RUNS", 10)
    map_ = SectorMap(DRIVE.sectors)
    for at in range(0, 1000, 8):
        map_.set_state(at, at + 4, SectorState.WRITTEN)
    raw = journal.encode_snapshot(DRIVE, CHECKPOINT, map_)
    saved = journal.parse_history(raw)
    assert (list(saved.map.iter_runs()), saved.rest) == (list(map_.iter_runs()), None)
    runs = [(at, at + 4, SectorState.TRIMMED) for at in range(0, 400, 8)]
    change = journal.encode_delta(replace(CHECKPOINT, written=77), runs)
    assert journal.parse_history(raw + change).look.written == 77
    for cut in range(0, len(change), 7):
        saved = journal.parse_history(raw + change[:cut])
        assert (list(saved.map.iter_runs()), saved.look) == (list(map_.iter_runs()), CHECKPOINT)
        assert saved.rest if cut else saved.rest is None
    with pytest.raises(BadInput):
        journal.parse_history(raw[:-1])


def test_missing_folder_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(OpwatchError, match=r"folder .*none does not exist"):
        HistoryFile(tmp_path / "none" / "x.history")
    assert list(tmp_path.iterdir()) == []


def test_unused_new_file_is_removed(tmp_path: Path) -> None:
    """An existing file stays."""
    path = tmp_path / "x"
    HistoryFile(path).abandon()
    assert not path.exists()
    path.touch()
    HistoryFile(path).abandon()
    assert path.read_bytes() == b""
    file = HistoryFile(path)
    file.replace([make_frames(2, 1)[0][0]])
    file.close()
    HistoryFile(path).abandon()
    assert read_history(path)


def test_changes_by_other_processes_are_noticed(tmp_path: Path) -> None:
    path, other = tmp_path / "x", tmp_path / "other"
    first, second = (piece for piece, _, _ in make_frames(2, 2))
    file = HistoryFile(path)
    file.replace([first])
    file.append_frames(second)
    assert (file.is_in_place, file.is_unchanged) == (True, True)
    os.truncate(path, len(first))
    assert (file.is_in_place, file.is_unchanged) == (True, False)
    file.replace([first])
    assert (file.is_in_place, file.is_unchanged) == (True, True)
    path.unlink()
    assert (file.is_in_place, file.is_unchanged) == (False, False)
    other.write_bytes(first)
    other.replace(path)
    assert (file.is_in_place, file.is_unchanged) == (False, False)
    file.close()
    assert (file.is_in_place, file.is_unchanged) == (False, False)


_WRITER = """
import sys
from pathlib import Path
from tests.unit.trim.history.test_journal import make_frames
from opwatch.collectors.history.file import HistoryFile
file = HistoryFile(Path(sys.argv[1]))
pieces = make_frames(5, 40)
file.replace([pieces[0][0]])
print("ready", flush=True)
while True:
    for piece, _, _ in pieces[1:]:
        file.append_frames(piece)
    file.replace([pieces[0][0]])
"""


def test_device_is_refused_as_a_history(tmp_path: Path) -> None:
    """Reading a device would never end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path("/dev/zero"), pipe):
        with pytest.raises(RefusedError, match="regular file"):
            HistoryFile(path)
        with pytest.raises(RefusedError, match="not a regular file"):
            read_history(path)


def test_killed_writer_leaves_a_readable_file(tmp_path: Path) -> None:
    path = tmp_path / "x.history"
    right = [(runs, look) for _, runs, look in make_frames(5, 40)]
    for wait in (0.0, 0.01, 0.03, 0.1):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]
        ) as writer:
            assert writer.stdout
            assert writer.stdout.readline() == b"ready\n"
            try:
                writer.wait(wait)
            except subprocess.TimeoutExpired:
                os.kill(writer.pid, signal.SIGKILL)
        saved, alive = read_history(path)
        assert not alive
        assert (list(saved.map.iter_runs()), saved.look) in right
        HistoryFile(path).close()


# --- the proof ---
