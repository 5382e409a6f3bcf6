"""`opwatch flight` from a user's point of view: the last minutes are kept even if the recorder is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from opwatch.host.scratch import ScratchDisk
from opwatch.recording.reading.notes import iterate_notes
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.entries import DiskAdded, PressureRead, ProgramsSkipped, RunEntry
from opwatch.samples.entry_parts import find_start_ns
from tests.kernel.recording.test_record import KILLS, KILLS_SEED, read_entries, write_repeatedly
from tests.kernel.support.filesystems import fill_space, make_filesystem, mount_device
from tests.kernel.support.watching import parse_lines, run_opwatch

FLIGHT = (sys.executable, "-m", "opwatch", "flight")


@contextmanager
def run_recorder(disk: ScratchDisk, ring: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a recorder with a ring until the block ends, if it has not ended earlier."""
    argv = [*FLIGHT, "--dev", disk.node, "--ring", str(ring), "--every", "0.05", *options]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            while "keeping the last" not in (line := process.stderr.readline()):
                assert line, "it has ended"
            yield process
        finally:
            process.kill()


def list_moments(entries: list[RunEntry]) -> list[int]:
    """Return the times of entries, without those that each part repeats."""
    parts = [entry for entry in entries if not isinstance(entry, ProgramsSkipped | PressureRead)]
    return [find_start_ns(entry) for entry in parts if find_start_ns(entry)]


def test_dump_holds_the_last_samples_while_the_recorder_runs(disk: ScratchDisk, tmp_path: Path) -> None:
    ring, path = tmp_path / "ring", tmp_path / "run.opw"
    with write_repeatedly(disk.node), run_recorder(disk, ring, "--keep", "2s") as process:
        begun_ns = time.monotonic_ns()
        time.sleep(6)
        asked_ns = time.monotonic_ns()
        done = run_opwatch("flight", "dump", "-o", str(path), "--ring", str(ring))
        assert done.returncode == 0, done.stderr
        status = json.loads(run_opwatch("flight", "status", "--json", "--ring", str(ring)).stdout)
        assert process.poll() is None
    kept = read_entries(path)
    assert isinstance(kept[0], DiskAdded)
    # Only the last part is kept, and nothing before the dump request is missing.
    assert list_moments(kept)[-1] - list_moments(kept)[0] > 1.9e9
    assert list_moments(kept)[0] > begun_ns + 1e9
    assert max(list_moments(kept)) > asked_ns - 2e9
    replayed = run_opwatch("replay", "--json", str(path))
    assert replayed.returncode == 0, replayed.stderr
    documents = parse_lines(replayed.stdout)
    intervals = [line for line in documents if line["type"] == "interval"]
    assert (
        sum(line["ops"]["write"]["count"] for line in intervals) == documents[-1]["ops"]["write"]["count"] > 0
    )
    assert status["is_written"] is True
    assert status["disks"] == [disk.name]
    assert status["seconds"] > 1.5


def test_dump_contains_a_note_with_its_time(disk: ScratchDisk, tmp_path: Path) -> None:
    ring, path = tmp_path / "ring", tmp_path / "run.opw"
    with run_recorder(disk, ring, "--keep", "1m"):
        time.sleep(0.5)
        before_ns = time.monotonic_ns()
        noted = run_opwatch("flight", "note", "deploy", "begins", "\x1b[31m", "--ring", str(ring))
        after_ns = time.monotonic_ns()
        assert (noted.returncode, noted.stderr) == (0, "")
        assert run_opwatch("note", str(ring), "x").returncode == 2
        time.sleep(0.5)
        assert run_opwatch("flight", "dump", "-o", str(path), "--ring", str(ring)).returncode == 0
    with closing(RecordedRun(path)) as run:
        [note] = iterate_notes(run)
    assert note.text == "deploy begins \x1b[31m"
    assert before_ns <= note.mono_ns <= after_ns
    assert note.at
    late = run_opwatch("flight", "note", "too late", "--ring", str(ring))
    assert late.returncode == 2
    assert str(ring) in late.stderr


def test_dump_last_writes_only_that_part_of_the_ring(disk: ScratchDisk, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with run_recorder(disk, ring, "--keep", "1m"):
        time.sleep(3)
        for name, last in (("short.opw", "1s"), ("long.opw", "1h")):
            done = run_opwatch(
                "flight", "dump", "-o", str(tmp_path / name), "--last", last, "--ring", str(ring)
            )
            assert done.returncode == 0, done.stderr
    # The end of a dump repeats the last sample.
    short, whole = (
        sorted({*list_moments(read_entries(tmp_path / name))}) for name in ("short.opw", "long.opw")
    )
    # Starts with the last sample before that time.
    begin_ns = short[-1] - 10**9
    assert short == [at_ns for at_ns in whole if short[0] <= at_ns <= short[-1]]
    assert short[0] == max(at_ns for at_ns in whole if at_ns <= begin_ns)
    assert whole[0] < short[0]


def test_killed_recorder_loses_at_most_a_second(disk: ScratchDisk, tmp_path: Path) -> None:
    chance = random.Random(KILLS_SEED)
    for number in range(KILLS):
        ring, path = tmp_path / f"ring{number}", tmp_path / f"{number}.opw"
        with write_repeatedly(disk.node), run_recorder(disk, ring, "--keep", "2s") as process:
            time.sleep(chance.uniform(0.5, 3.5))
            killed_ns = time.monotonic_ns()
            process.kill()
            process.wait()
        done = run_opwatch("flight", "dump", "-o", str(path), "--ring", str(ring))
        assert done.returncode == 0, done.stderr
        assert max(list_moments(read_entries(path))) > killed_ns - 1e9
        status = json.loads(run_opwatch("flight", "status", "--json", "--ring", str(ring)).stdout)
        assert status["is_written"] is False


def test_signal_ends_the_recorder_and_keeps_the_ring(disk: ScratchDisk, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with run_recorder(disk, ring) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert run_opwatch("flight", "dump", "-o", str(tmp_path / "run.opw"), "--ring", str(ring)).returncode == 0
    assert os.listdir(ring).count("0000000001.opw") == 1
    assert not any(name.endswith("-wal") for name in os.listdir(ring))


def test_second_recorder_of_a_ring_is_refused(disk: ScratchDisk, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with run_recorder(disk, ring):
        other = run_opwatch("flight", "--dev", disk.node, "--ring", str(ring))
        assert other.returncode == 1
        assert "already" in other.stderr
        assert "--ring" in other.stderr


def test_dump_reports_a_stopped_recorder_without_waiting(disk: ScratchDisk, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with run_recorder(disk, ring) as process:
        process.send_signal(signal.SIGSTOP)
        done = run_opwatch("flight", "dump", "-o", str(tmp_path / "run.opw"), "--ring", str(ring))
        process.send_signal(signal.SIGCONT)
        assert done.returncode == 1
        assert f" {ring} does not " in done.stderr
    assert not (tmp_path / "run.opw").exists()


def test_full_disk_ends_the_recorder_with_an_error(disk: ScratchDisk, tmp_path: Path) -> None:
    with ScratchDisk(4 << 20) as small:
        make_filesystem("ext4", small.node, "-O", "^has_journal", "-N", "64", "-m", "0")
        point = tmp_path / "small"
        point.mkdir()
        with mount_device(small.node, point):
            fill_space(point / "ballast", left=100 << 10)
            with write_repeatedly(disk.node):
                argv = [*FLIGHT, "--dev", disk.node, "--ring", str(point / "ring"), "--every", "0.02"]
                done = subprocess.run(argv, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            assert done.returncode == 1
            assert "full" in done.stderr
            assert "Traceback" not in done.stderr


def test_rule_writes_a_recording_from_before_and_after_the_event(disk: ScratchDisk, tmp_path: Path) -> None:
    ring, into = tmp_path / "ring", tmp_path / "caught"
    rule = "write.iops>1 for 0.2s"
    options = ("--keep", "1m", "--when", rule, "--when", "gone", "--after", "1s", "--into", str(into))
    with run_recorder(disk, ring, *options) as process:
        time.sleep(1)
        begun_ns = time.monotonic_ns()
        with write_repeatedly(disk.node):
            deadline = time.monotonic() + 60
            while not (into.is_dir() and [*into.glob("*.opw")]) and time.monotonic() < deadline:
                time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr
        assert f"{rule} on {disk.name}: " in process.stderr.read()
    # On a loaded machine the rate may drop briefly, so that the rule fires again, possibly after the end of
    # the first recording.
    path = min(into.glob(f"*-{disk.name}.opw"))
    kept = RecordedRun(path)
    try:
        fired = [event for event in kept.events if event.kind == "rule fired"]
        assert {event.words.startswith(rule) for event in fired} == {True}
        times = list_moments(list(kept.iter_entries()))
    finally:
        kept.close()
    assert times[0] < begun_ns
    assert times[-1] > fired[0].mono_ns + 0.8e9
    assert path.stat().st_mode & 0o777 == 0o600


def test_gone_rule_writes_a_recording_when_the_disk_disappears(tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with ExitStack() as stack:
        disk = stack.enter_context(ScratchDisk(64 << 20))
        name = disk.name
        with run_recorder(disk, ring, "--when", "gone", "--after", "0", "--return-within", "0") as process:
            time.sleep(1)
            stack.close()
            assert process.wait(60) == 1
    (path,) = (ring / "caught").glob("*.opw")
    kept = RecordedRun(path)
    try:
        fired = [event.words for event in kept.events if event.kind == "rule fired"]
        assert fired == [f"{name} is gone"]
        assert any(isinstance(entry, DiskAdded) for entry in kept.iter_entries())
    finally:
        kept.close()


def test_pending_recording_is_written_when_the_recorder_ends(disk: ScratchDisk, tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    with run_recorder(disk, ring, "--when", "write.iops>1", "--after", "1h") as process:
        with write_repeatedly(disk.node):
            assert process.stderr
            while "write.iops>1 on" not in process.stderr.readline():
                pass
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    (path,) = (ring / "caught").glob("*.opw")
    assert read_entries(path)


def test_invalid_options_are_refused_with_a_reason(disk: ScratchDisk, tmp_path: Path) -> None:
    ring = str(tmp_path / "ring")
    for words, status, text in (
        (("dump", "-o", str(tmp_path / "x.opw"), "--ring", ring), 6, "no flight recorder"),
        (("status", "--ring", ring), 6, "no flight recorder"),
        (("dump",), 2, "-o"),
        (("--when", "waf>3", "--ring", ring), 2, "--waf T"),
        (("--when", "waf>3", "--dev", disk.node, "--waf", "0", "--ring", ring), 2, "--waf T"),
        (("--when", "read.p98>1ms", "--ring", ring), 2, "p98"),
        (("--when", "read.p99>+5%", "--ring", ring), 2, "a change needs"),
        (("--most", "1M", "--ring", ring), 2, "--most"),
        (("--keep", "1s", "--every", "2s", "--ring", ring), 2, "--keep"),
        (("--ring", "/proc/none/ring"), 1, "cannot create"),
    ):
        done = run_opwatch("flight", *words)
        assert done.returncode == status, (words, done.stderr)
        assert text in done.stderr
    # Options before the verb apply to the verb.
    before = run_opwatch("flight", "--ring", str(tmp_path / "other"), "status")
    assert str(tmp_path / "other") in before.stderr
    (tmp_path / "there.opw").touch()
    with run_recorder(disk, tmp_path / "ring"):
        done = run_opwatch("flight", "dump", "-o", str(tmp_path / "there.opw"), "--ring", ring)
        assert done.returncode == 3
        assert str(tmp_path / "there.opw") in done.stderr
    kept = RecordedRun(next((tmp_path / "ring").glob("*.opw")))
    kept.close()
