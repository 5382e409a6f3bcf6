"""Histories of disks in a recording: their content after a crash or damage, and exclusive writing."""

from __future__ import annotations

import errno
import gzip
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import BadInput, OpwatchError, RefusedError
from opwatch.recording.coding.runs import RunLoader, encode_runs
from opwatch.recording.reading import opening
from opwatch.recording.reading.history import read_history, read_history_file
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.writing import history as module
from opwatch.recording.writing.history import HistoryFile
from opwatch.trim.history.saved import Checkpoint, HistoryDrive, SavedHistory
from opwatch.trim.history.sectormap import Run, SectorMap, SectorState
from tests.unit.support.recordings import record_run, update_checksums
from tests.unit.support.runs import generate_run

KEPT = Path(__file__).parents[2] / "fixtures" / "good" / "recordings" / "1-history.opw.gz"
DRIVE = HistoryDrive("sda", "S1", None, 3 << 19, 8, 0)
CHECKPOINT = Checkpoint(1, 2, "boot", 3, 4, 5, 6, 0, None, 7, {"a reason": 1}, ("a note",))


class Recording:
    """A history that is written, with its map and its last checkpoint."""

    def __init__(self, path: Path, seed: int = 0, drive: HistoryDrive = DRIVE) -> None:
        self.drive, self.map, self.look = drive, SectorMap(drive.sectors), CHECKPOINT
        self.file, self._random = HistoryFile(path), random.Random(seed)
        self.file.replace_map(drive, self.look, self.map)
        self.map.log = []

    def change_map(self, runs: int = 3) -> None:
        """Change some sectors and save them."""
        for _ in range(runs):
            start = self._random.randrange(self.drive.sectors)
            self.map.set_state(start, start + self._random.randrange(1, 200), self._random.choice([0, 1, 2]))
        self.save_changes()

    def save_changes(self) -> None:
        self.look = replace(self.look, written=self.look.written + 1)
        self.file.add_changes(self.look, self.map.log or [])
        self.map.log = []

    def check_saved(self, saved: SavedHistory) -> None:
        assert (saved.drive, saved.look) == (self.drive, self.look)
        assert join_runs(saved.map) == join_runs(self.map)


def join_runs(map_: SectorMap) -> list[Run]:
    """Return the runs, with equal neighbours joined."""
    runs: list[Run] = []
    for start, end, state in map_.iter_runs():
        if runs and runs[-1][2] == state:
            runs[-1] = (runs[-1][0], end, state)
        else:
            runs.append((start, end, state))
    return runs


def execute_change(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount
        update_checksums(connection)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "kept.history"
    path.write_bytes(gzip.decompress(KEPT.read_bytes()))
    return path


def test_kept_history_is_read(kept: Path) -> None:
    saved, alive = read_history(kept)
    assert (saved.drive.name, saved.drive.sectors, saved.drive.granule, alive) == ("loop0", 131072, 8, False)
    assert saved.map.collect_extents(SectorState.WRITTEN).total_bytes == 7 * 4096
    assert saved.map.collect_extents(SectorState.TRIMMED).total_bytes == 131072 * 512 - 7 * 4096 - 4096


def test_history_is_written_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "x.history"
    recording = Recording(path)
    assert (recording.file.saved, recording.file.damage) == (None, None)
    for _ in range(20):
        recording.change_map()
        saved, _ = read_history(path)
        recording.check_saved(saved)
    recording.file.close()
    assert [file.name for file in tmp_path.iterdir()] == ["x.history"]
    assert path.stat().st_mode & 0o077 == 0
    saved, alive = read_history(path)
    assert not alive
    recording.check_saved(saved)
    file = HistoryFile(path)
    assert file.saved
    recording.check_saved(file.saved)
    file.replace_map(DRIVE, recording.look, recording.map)
    recording.file = file
    recording.change_map()
    file.close()
    recording.check_saved(read_history(path)[0])


def test_file_shrinks_when_the_whole_map_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GROWTH_BYTES", 100_000)
    path = tmp_path / "x.history"
    recording = Recording(path)
    assert not recording.file.has_grown
    for _ in range(300):
        recording.map.set_state(0, 8, recording.look.written % 2 + 1)
        recording.map.log = [(0, 8, recording.look.written % 2 + 1)] * 20
        recording.save_changes()
    assert recording.file.has_grown
    recording.file.replace_map(DRIVE, recording.look, recording.map)
    assert not recording.file.has_grown
    recording.file.close()
    assert path.stat().st_size < 20_000
    recording.check_saved(read_history(path)[0])


def test_large_save_takes_several_rows_that_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_RUNS", 10)
    path = tmp_path / "x.history"
    recording = Recording(path)
    recording.change_map(200)
    recording.file.close()
    recording.check_saved(read_history(path)[0])
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM changes").fetchone()[0] > 10


# --- refusals ---


def test_other_files_are_left_unchanged(tmp_path: Path) -> None:
    letter, run = tmp_path / "letter", tmp_path / "run.opw"
    letter.write_bytes(b"a letter")
    record_run(run, generate_run(3))
    for path in (letter, run):
        content = path.read_bytes()
        with pytest.raises(RefusedError, match=f"{path} .* -o "):
            HistoryFile(path)
        with pytest.raises(OpwatchError, match=f"{path} .*{path} "):
            read_history(path)
        assert path.read_bytes() == content
    with pytest.raises(OpwatchError, match=os.strerror(errno.ENOENT)):
        read_history(tmp_path / "none")


def test_history_is_not_read_as_a_run(kept: Path) -> None:
    with pytest.raises(BadInput, match="opwatch trim stale --history"):
        RecordedRun(kept)


@pytest.mark.parametrize("dangling", [False, True])
def test_a_planted_link_is_not_written_through(dangling: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if not dangling:
        target.write_bytes(gzip.decompress(KEPT.read_bytes()))
    link.symlink_to("target")
    with pytest.raises(RefusedError, match=f"{link} .*link"):
        HistoryFile(link)
    assert {file.name for file in tmp_path.rglob("*")} == ({"link"} if dangling else {"target", "link"})


def test_a_second_name_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / "name").hardlink_to(tmp_path / "target")
    with pytest.raises(RefusedError, match=r"/name .*\b2\b"):
        HistoryFile(tmp_path / "name")


def test_planted_log_is_not_applied(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "planted").write_bytes(b"x")
    (tmp_path / "kept.history-wal").hardlink_to(tmp_path / "planted")
    file = HistoryFile(kept)
    assert file.saved
    with pytest.raises(RefusedError, match=r"\.history-wal "):
        file.replace_map(file.saved.drive, file.saved.look, file.saved.map)
    file.close()
    assert (tmp_path / "planted").read_bytes() == b"x"


def test_a_device_is_no_history(tmp_path: Path) -> None:
    """Reading a device would never end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path("/dev/zero"), pipe):
        with pytest.raises(RefusedError, match=f"^{path} .*regular"):
            HistoryFile(path)
        with pytest.raises(RefusedError, match=f"^{path} .*regular"):
            read_history(path)


def test_no_folder_is_made(tmp_path: Path) -> None:
    with pytest.raises(OpwatchError, match=rf"{tmp_path}/none .* -o$"):
        HistoryFile(tmp_path / "none" / "x.history")
    assert list(tmp_path.iterdir()) == []


DISK_FULL = "database or disk is full"


def raise_disk_full(*_: object) -> None:
    raise sqlite3.OperationalError(DISK_FULL)


def test_unused_new_file_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing file stays."""
    path = tmp_path / "x"
    HistoryFile(path).abandon()
    assert not path.exists()
    path.touch()
    HistoryFile(path).abandon()
    assert path.read_bytes() == b""
    path.unlink()
    with monkeypatch.context() as full:
        full.setattr(HistoryFile, "_put_checkpoint", raise_disk_full)
        file = HistoryFile(path)
        with pytest.raises(OpwatchError, match=f"{path} .*: {DISK_FULL}"):
            file.replace_map(DRIVE, CHECKPOINT, SectorMap(DRIVE.sectors))
        file.abandon()
    assert os.listdir(tmp_path) == []
    Recording(path).file.close()
    HistoryFile(path).abandon()
    assert read_history(path)


def test_history_on_a_full_disk_keeps_its_last_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(tmp_path / "x")
    recording.change_map()
    before, runs = recording.look, join_runs(recording.map)
    monkeypatch.setattr(HistoryFile, "_put_checkpoint", raise_disk_full)
    with pytest.raises(OpwatchError, match=DISK_FULL):
        recording.change_map()
    recording.file.close()
    saved, _ = read_history(tmp_path / "x")
    assert (saved.look, join_runs(saved.map)) == (before, runs)


# --- other processes ---


def test_changes_by_other_processes_are_noticed(tmp_path: Path) -> None:
    path, other = tmp_path / "x", tmp_path / "other"
    recording = Recording(path)
    file = recording.file
    recording.change_map()
    assert (file.is_in_place, file.is_unchanged) == (True, True)
    os.truncate(path, 512)
    assert (file.is_in_place, file.is_unchanged) == (True, False)
    file.replace_map(DRIVE, recording.look, recording.map)
    assert (file.is_in_place, file.is_unchanged) == (True, True)
    recording.check_saved(read_history(path)[0])
    log = path.with_name("x-wal")
    log.rename(other)
    assert (file.is_in_place, file.is_unchanged) == (False, False)
    other.rename(log)
    assert (file.is_in_place, file.is_unchanged) == (True, True)
    shutil.copy(path, other)
    other.replace(path)
    assert (file.is_in_place, file.is_unchanged) == (False, False)
    file.close()
    # The copy without its log is an earlier state.
    assert os.listdir(tmp_path) == ["x"]
    assert read_history(path)[0].drive == DRIVE


def test_file_that_takes_the_name_before_the_first_save_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    file = HistoryFile(path)
    assert file.is_unchanged
    (tmp_path / "other").write_text("a letter")
    (tmp_path / "other").replace(path)
    assert (file.is_in_place, file.is_unchanged) == (False, False)
    file.abandon()
    assert path.read_text() == "a letter"


_WRITER = """
import sys
from pathlib import Path
from tests.unit.recording.test_history import Recording
recording = Recording(Path(sys.argv[1]), seed=int(sys.argv[2]))
print("ready", flush=True)
while True:
    recording.change_map(20)
    if recording.look.written % 50 == 0:
        recording.file.replace_map(recording.drive, recording.look, recording.map)
"""


@contextmanager
def _start_writer(path: Path, seed: int) -> Iterator[None]:
    """Write until the context ends; then kill the writer."""
    argv = [sys.executable, "-c", _WRITER, str(path), str(seed)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as writer:
        try:
            assert writer.stdout
            assert writer.stdout.readline() == b"ready\n"
            yield
        finally:
            writer.kill()


def _repeat_changes(seed: int, saved: SavedHistory) -> list[Run]:
    """Return the runs that the writer has after as many saves."""
    map_, chance = SectorMap(DRIVE.sectors), random.Random(seed)
    for _ in range((saved.look.written - CHECKPOINT.written) * 20):
        start = chance.randrange(DRIVE.sectors)
        map_.set_state(start, start + chance.randrange(1, 200), chance.choice([0, 1, 2]))
    return join_runs(map_)


def test_history_with_an_empty_log_is_read_as_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = Recording(tmp_path / "x")
    assert (tmp_path / "x-wal").stat().st_size == 0
    look, runs, measure_file = recording.look, join_runs(recording.map), opening._measure_file

    def change_and_measure(path: Path) -> tuple[int, int]:
        # Enough for the log to be moved into the file.
        for _ in range(200):
            recording.change_map(20)
        return measure_file(path)

    monkeypatch.setattr(opening, "_measure_file", change_and_measure)
    saved, alive = read_history(tmp_path / "x")
    assert (alive, saved.look, join_runs(saved.map)) == (True, look, runs)
    recording.file.close()


def test_history_is_read_while_it_is_written_and_after_kill_9(tmp_path: Path) -> None:
    for seed, reads in enumerate((0, 1, 4)):
        path = tmp_path / f"{seed}.history"
        with _start_writer(path, seed):
            newest = 0
            for _ in range(reads):
                saved, alive = read_history(path)
                assert alive
                assert join_runs(saved.map) == _repeat_changes(seed, saved)
                assert saved.look.written >= newest
                newest = saved.look.written
            with pytest.raises(RefusedError, match=f"^{path}: "):
                HistoryFile(path)
        saved, alive = read_history(path)
        assert not alive
        assert join_runs(saved.map) == _repeat_changes(seed, saved)
        # The killed recorder's log is continued.
        file = HistoryFile(path)
        assert file.saved and file.saved.look == saved.look
        file.replace_map(DRIVE, saved.look, saved.map)
        file.close()
        again, _ = read_history(path)
        assert (again.look, join_runs(again.map)) == (saved.look, join_runs(saved.map))


# --- damage and invented content ---


def test_damaged_history_starts_again(kept: Path) -> None:
    execute_change(kept, "UPDATE checkpoints SET body = '[]'")
    file = HistoryFile(kept)
    assert file.saved is None and file.damage
    file.replace_map(DRIVE, CHECKPOINT, SectorMap(DRIVE.sectors))
    file.close()
    assert read_history(kept)[0].drive == DRIVE
    assert os.listdir(kept.parent) == ["kept.history"]


@pytest.mark.parametrize("seed", range(3))
def test_history_with_a_changed_byte_is_complete_or_refused(kept: Path, seed: int) -> None:
    raw, chance = kept.read_bytes(), random.Random(seed)
    good, _ = read_history(kept)
    read = 0
    for _ in range(25):
        changed = bytearray(raw)
        changed[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        kept.write_bytes(changed)
        try:
            saved, _ = read_history(kept)
        except OpwatchError:
            continue
        read += 1
        assert (saved.drive, saved.look, join_runs(saved.map)) == (good.drive, good.look, join_runs(good.map))
    assert read > 0


def test_salvaged_history_is_complete_and_written_to_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    recording = Recording(path)
    for _ in range(20):
        recording.change_map(20)
    recording.file.close()
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = 'changes'"
        [(root,)] = connection.execute(query).fetchall()
    raw = bytearray(path.read_bytes())
    assert raw[(root - 1) * 512] == 5, "not an interior page"
    raw[(root - 1) * 512 : root * 512] = bytes(512)
    path.write_bytes(raw)
    file = HistoryFile(path)
    assert file.saved and file.saved.is_salvaged
    recording.check_saved(file.saved)
    file.replace_map(DRIVE, recording.look, file.saved.map)
    file.close()
    saved, _ = read_history(path)
    assert not saved.is_salvaged
    recording.check_saved(saved)


def _set_changes(*runs: Run) -> Callable[[Path], None]:
    return lambda path: execute_change(path, "UPDATE changes SET runs = ?", encode_runs(runs))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda path: execute_change(path, "DELETE FROM checkpoints"), "table checkpoints .*0 "),
        (lambda path: execute_change(path, "DELETE FROM changes WHERE number = 4"), "row 5 .* 3$"),
        (
            lambda path: execute_change(
                path, "DELETE FROM changes WHERE number = (SELECT max(number) FROM changes)"
            ),
            r"table changes .* before row \d+$",
        ),
        (lambda path: execute_change(path, "DELETE FROM shapes WHERE class = 'Checkpoint'"), "Checkpoint"),
        (
            lambda path: execute_change(path, "UPDATE checkpoints SET body = replace(body, ',64,', ',1e3,')"),
            "written",
        ),
        (
            lambda path: execute_change(
                path, "UPDATE header SET value = replace(value, ',8,', ',0,') WHERE name = 'history'"
            ),
            "header.* granule",
        ),
        (lambda path: execute_change(path, "UPDATE changes SET runs = x'313233'"), r"\b3 bytes "),
        (lambda path: execute_change(path, "UPDATE checkpoints SET first = 0"), "row 1 .* -1$"),
        (_set_changes((8, 8, 1)), r" 8\.\.8 "),
        (_set_changes((0, 1 << 63, 1)), rf" 0\.\.{1 << 63} "),
        (_set_changes((0, 8, 3)), r" 0\.\.8 .*\b3$"),
    ],
    ids=range(11),
)
def test_invalid_rows_are_refused_with_their_place(
    harm: Callable[[Path], None], words: str, kept: Path
) -> None:
    harm(kept)
    with pytest.raises(OpwatchError, match=rf"{kept} .*: {kept}: .*{words}"):
        read_history(kept)
    with pytest.raises(BadInput):
        read_history_file(kept)


def test_a_run_of_all_of_the_largest_disk_takes_no_time_and_no_memory() -> None:
    sectors = (1 << 41) - 1
    begin = time.process_time()
    tracemalloc.start()
    map_ = SectorMap(sectors)
    RunLoader(map_).load_runs(encode_runs([(0, sectors, SectorState.WRITTEN)]), "x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (map_.collect_extents(SectorState.WRITTEN).total_bytes, map_.pieces) == (
        sectors * 512,
        (1 << 13) + 1,
    )
    assert peak < 64 << 20
    with pytest.raises(BadInput, match=r"\bcover\b"):
        RunLoader(SectorMap(sectors)).load_runs(
            encode_runs([(0, sectors, at % 2 + 1) for at in range(100)]), "x"
        )
    assert time.process_time() - begin < 10
