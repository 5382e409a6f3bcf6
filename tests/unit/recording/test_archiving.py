"""Rows of a flight recorder in an archive: complete files only, and no rows lost to kills or full disks."""

from __future__ import annotations

import errno
import importlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import OpwatchError
from opwatch.recording.ring.folder import RingFolder
from opwatch.samples.entries import RunEntry
from opwatch.sinks.export.archive import convert_spool, make_archive_folder
from opwatch.sinks.export.duckdb_writer import DuckdbWriter
from opwatch.sinks.export.spool import RowSpool, close_leftovers, extract_rows, list_spooled, lock_spool
from opwatch.sinks.export.table import COLUMNS, RowOrigin, compute_shard
from opwatch.tools import cli
from opwatch.tools.commands.flight import archiving
from opwatch.tools.commands.flight.archiving import Archiver, RowCollector
from tests.unit.support.runs import GeneratedRun, S, generate_run

ORIGIN = RowOrigin("flight", "web 1", "m", "b", "0.1")
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def make_row(number: int, at: datetime = NOON, host: str = "web 1") -> dict[str, Any]:
    return {
        **dict.fromkeys(COLUMNS),
        "host": host,
        "device": "sda",
        "op": "read",
        "time": f"{at:%Y-%m-%d %H:%M:%S.%f}",
        "requests": number,
        "latency": [{"slot": 7, "count": number}],
    }


def read_requests(folder: Path) -> list[int]:
    pattern = f"{folder}/*/*/*.parquet"
    query = f"SELECT requests FROM read_parquet('{pattern}', hive_partitioning = true) ORDER BY requests"
    return [number for [number] in importlib.import_module("duckdb").sql(query).fetchall()]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    (tmp_path / "ring").mkdir(mode=0o700)
    return tmp_path / "ring" / "archive"


@pytest.fixture
def rows(spool: Path) -> RowSpool:
    return RowSpool(spool, "web 1", compute_shard("web 1"))


def test_closed_rows_become_one_file_of_their_day_and_shard(
    tmp_path: Path, spool: Path, rows: RowSpool
) -> None:
    for number in (1, 2, 3):
        rows.add_rows(NOON + timedelta(minutes=number), [make_row(number)])
    assert convert_spool(spool, tmp_path / "fleet") == ([], [])
    rows.close_file()
    [path], messages = convert_spool(spool, tmp_path / "fleet")
    assert messages == []
    assert path.parent == tmp_path / "fleet" / "day=2026-11-29" / f"shard={compute_shard('web 1')}"
    assert path.name.startswith("web_1-20261129T120100Z-")
    assert read_requests(tmp_path / "fleet") == [1, 2, 3]
    assert list_spooled(spool) == []
    assert [name for name in os.listdir(path.parent) if not name.endswith(".parquet")] == []


def test_rows_survive_a_conversion_that_fails(
    tmp_path: Path, spool: Path, rows: RowSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.add_rows(NOON, [make_row(1)])
    rows.close_file()

    def fail(*_: object, **__: object) -> None:
        raise OpwatchError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(DuckdbWriter, "copy_rows", fail)
        with pytest.raises(OpwatchError, match="no space"):
            convert_spool(spool, tmp_path / "fleet")
    assert not list((tmp_path / "fleet").rglob("*.parquet"))
    assert len(list_spooled(spool)) == 1
    convert_spool(spool, tmp_path / "fleet")
    assert read_requests(tmp_path / "fleet") == [1]


@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
def test_killed_conversion_writes_no_row_twice(
    tmp_path: Path, spool: Path, rows: RowSpool, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows.add_rows(NOON, [make_row(1)])
    rows.close_file()

    def kill(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        monkeypatch.setattr(*((Path, "rename") if moment == "before the rename" else (Path, "unlink")), kill)
        convert_spool(spool, tmp_path / "fleet")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    complete = list((tmp_path / "fleet").rglob("*.parquet"))
    assert len(complete) == (0 if moment == "before the rename" else 1)
    convert_spool(spool, tmp_path / "fleet")
    assert read_requests(tmp_path / "fleet") == [1]
    assert list((tmp_path / "fleet").rglob("*.unfinished")) == []


def test_planted_links_in_an_archive_are_not_followed(
    tmp_path: Path, spool: Path, rows: RowSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder may belong to the user that uploads it, and the recorder is root."""
    fleet, precious = tmp_path / "fleet", tmp_path / "precious"
    rows.add_rows(NOON, [make_row(1)])
    rows.close_file()
    [waiting] = list_spooled(spool)
    folder = fleet / f"day={waiting.day}" / f"shard={waiting.shard}"
    folder.mkdir(parents=True)
    precious.write_text("precious")
    (folder / f"{waiting.stem}.parquet.unfinished").symlink_to(precious)
    (fleet / f".opwatch-{os.getpid()}.unfinished").symlink_to(tmp_path / "created")
    make_archive_folder(fleet)
    convert_spool(spool, fleet)
    assert precious.read_text() == "precious"
    assert not (tmp_path / "created").exists()
    assert read_requests(fleet) == [1]


def test_full_disk_keeps_the_earlier_rows_whole(spool: Path, rows: RowSpool, tmp_path: Path) -> None:
    rows.add_rows(NOON, [make_row(1)])
    [path] = spool.glob("*.part")
    before, limits = path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before + 10, limits[1]))
        with pytest.raises(OSError) as caught:
            rows.add_rows(NOON, [make_row(number) for number in range(500)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert caught.value.errno == errno.EFBIG
    assert path.stat().st_size == before
    rows.add_rows(NOON, [make_row(2)])
    rows.close_file()
    convert_spool(spool, tmp_path / "fleet")
    assert read_requests(tmp_path / "fleet") == [1, 2]


@pytest.mark.parametrize("cut", [1, 20])
def test_cut_rows_are_read_up_to_the_last_complete_batch(
    spool: Path, rows: RowSpool, tmp_path: Path, cut: int
) -> None:
    rows.add_rows(NOON, [make_row(1)])
    rows.add_rows(NOON, [make_row(2)])
    [path] = spool.glob("*.part")
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    lines = tmp_path / "lines"
    assert extract_rows(path, lines) == len(whole) // 2 - cut
    assert lines.read_text().count("\n") == 1
    close_leftovers(spool)
    _, [message] = convert_spool(spool, tmp_path / "fleet")
    assert str(len(whole) // 2 - cut) in message
    assert read_requests(tmp_path / "fleet") == [1]


def test_rows_without_a_complete_batch_make_no_file(spool: Path, rows: RowSpool, tmp_path: Path) -> None:
    rows.add_rows(NOON, [make_row(1)])
    [path] = spool.glob("*.part")
    path.write_bytes(path.read_bytes()[:15])
    close_leftovers(spool)
    added, messages = convert_spool(spool, tmp_path / "fleet")
    assert (added, len(messages)) == ([], 1)
    assert list_spooled(spool) == []


def test_oldest_rows_are_removed_beyond_the_limit(spool: Path, rows: RowSpool) -> None:
    for hour in range(4):
        rows.add_rows(NOON + timedelta(hours=hour), [make_row(hour)])
        rows.close_file()
    sizes = [one.size for one in list_spooled(spool)]
    dropped = rows.drop_oldest(sum(sizes[2:]))
    assert [one.time for one in dropped] == ["20261129T120000", "20261129T130000"]
    assert [one.time for one in list_spooled(spool)] == ["20261129T140000", "20261129T150000"]


def test_other_files_of_the_spool_stay(spool: Path, rows: RowSpool, tmp_path: Path) -> None:
    for name in ("notes.rows.gz", "web1-20261129T120000Z-zz-abcdef.rows.gz", "x.parquet"):
        (spool / name).write_text("x")
    assert convert_spool(spool, tmp_path / "fleet") == ([], [])
    assert len(os.listdir(spool)) == 3


def test_minutes_of_a_run_sum_to_the_run() -> None:
    collector, run = RowCollector(ORIGIN, S), GeneratedRun()
    begin = run.add_disk(0, "nvme0n1")
    entries: list[RunEntry] = [begin, *(run.make_interval_entry([0]) for _ in range(150))]
    end = run.make_end_entry([0])
    batches = [batch for entry in [*entries, end] if (batch := collector.collect_rows(entry))]
    reads = [row for _, rows in batches for row in rows if row["op"] == "read"]
    assert [round(row["interval_s"]) for row in reads] == [60, 60, 30]
    first, last = (sample.reading.sample.ops["read"].ends for sample in (begin.sample, end.samples[0]))
    assert sum(row["requests"] for row in reads) == last - first > 0


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """Run conversions in this process instead of a separate one."""
    seen = list[list[str]]()

    class SameProcess:
        def __init__(self, argv: list[str], **_: object) -> None:
            seen.append(argv)
            output, ring = (Path(argv[argv.index(name) + 1]) for name in ("-o", "--ring"))
            convert_spool(ring / "archive", output)

        def poll(self) -> int:
            return 0

        def wait(self, timeout: float | None = None) -> int:
            return 0

    monkeypatch.setattr(subprocess, "Popen", SameProcess)
    yield seen


def test_files_are_written_when_their_period_ends_and_at_the_end(
    tmp_path: Path, spool: Path, conversions: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "ROW_NS", S)
    monkeypatch.setattr(archiving, "_MAX_BATCHES", 1000)
    # Wall time 10:50:00 plus seconds: periods of a minute end within the run.
    monkeypatch.setitem(archiving.PERIODS, "hour", "%Y-%m-%d %H:%M")
    archiver = Archiver(ORIGIN, S, spool=spool, archive=tmp_path / "fleet", period="hour")
    for entry in generate_run(70):
        archiver.process_entry(entry)
    archiver.finish()
    files = list((tmp_path / "fleet").rglob("*.parquet"))
    assert len(files) == len(conversions) == 2
    query = f"SELECT count(DISTINCT time), sum(requests) FROM read_parquet('{tmp_path}/fleet/*/*/*.parquet')"
    [[moments, requests]] = importlib.import_module("duckdb").sql(query).fetchall()
    assert moments > 60
    assert requests > 0


def test_rows_of_a_killed_recorder_are_archived_at_the_next_start(
    tmp_path: Path, spool: Path, rows: RowSpool, conversions: list[list[str]]
) -> None:
    rows.add_rows(NOON, [make_row(1)])
    archiver = Archiver(ORIGIN, S, spool=spool, archive=tmp_path / "fleet", period="hour")
    archiver.finish()
    assert read_requests(tmp_path / "fleet") == [1]
    assert len(conversions) == 1


def test_spool_that_cannot_be_written_is_reported_once(
    tmp_path: Path,
    spool: Path,
    conversions: list[list[str]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archiving, "ROW_NS", S)
    monkeypatch.setattr(RowSpool, "add_rows", fail)
    archiver = Archiver(ORIGIN, S, spool=spool, archive=tmp_path / "fleet", period="hour")
    for entry in generate_run(10):
        archiver.process_entry(entry)
    archiver.finish()
    lines = [line for line in capsys.readouterr().err.splitlines() if "No space left" in line]
    assert len(lines) == 1


def test_folder_that_disappears_does_not_end_the_thread(
    tmp_path: Path, spool: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    monkeypatch.setattr(archiving, "ROW_NS", S)
    archiver = Archiver(ORIGIN, S, spool=spool, archive=tmp_path / "fleet", period="hour")
    spool.rename(tmp_path / "away")
    for entry in generate_run(5):
        archiver.process_entry(entry)
    archiver.finish()
    assert failures == []
    assert str(spool) in capsys.readouterr().err


def run_archive(ring: Path, fleet: Path) -> int:
    try:
        return cli.main(["flight", "archive", "-o", str(fleet), "--ring", str(ring)])
    except SystemExit as end:
        return int(str(end.code))


def test_command_writes_what_a_killed_recorder_left(tmp_path: Path, spool: Path, rows: RowSpool) -> None:
    rows.add_rows(NOON, [make_row(1)])
    assert run_archive(spool.parent, tmp_path / "fleet") == 0
    assert read_requests(tmp_path / "fleet") == [1]
    assert run_archive(spool.parent, tmp_path / "fleet") == 0


def test_command_leaves_open_rows_to_a_running_recorder(tmp_path: Path, spool: Path, rows: RowSpool) -> None:
    rows.add_rows(NOON, [make_row(1)])
    with closing(RingFolder(spool.parent)) as ring:
        ring.lock_as_recorder()
        assert run_archive(spool.parent, tmp_path / "fleet") == 0
    assert not list((tmp_path / "fleet").rglob("*.parquet"))
    with lock_spool(spool) as is_ours:
        assert is_ours
        assert run_archive(spool.parent, tmp_path / "fleet") == 0
    assert len(list_spooled(spool)) == 1


def test_command_refuses_a_ring_without_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ring").mkdir(mode=0o700)
    assert run_archive(tmp_path / "ring", tmp_path / "fleet") == 1
    assert "--archive" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "hidden", "status", "words"),
    [
        (("--archive", "fleet"), "duckdb", 5, "pip install"),
        (("--archive-every", "day"), None, 2, "--archive"),
        (("--archive", "/proc/fleet"), None, 1, "/proc/fleet"),
    ],
)
def test_archive_that_cannot_be_written_is_refused_at_the_start(
    tmp_path: Path, options: tuple[str, ...], hidden: str | None, status: int, words: str
) -> None:
    hide = f"import sys; sys.modules[{hidden!r}] = None; " if hidden else ""
    code = f"{hide}from opwatch.tools import cli; sys_exit = cli.main(); raise SystemExit(sys_exit)"
    argv = [sys.executable, "-c", code, "flight", "--ring", str(tmp_path / "ring"), *options]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "ring").exists()
