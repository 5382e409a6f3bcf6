"""`opwatch record`, `-o` and `opwatch replay` from a user's point of view."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from opwatch.errors import BadInput
from opwatch.host.scratch import ScratchDisk
from opwatch.recording.reading.command import find_command_cpu
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import COMMAND_CPU
from opwatch.samples.entries import RunEntry
from opwatch.samples.entry_parts import get_samples
from tests.kernel.support.filesystems import fill_space, make_filesystem, mount_device
from tests.kernel.support.watching import parse_lines, run_opwatch

OPWATCH = (sys.executable, "-m", "opwatch")
# Samples older than this when a recorder is killed must be in its file.
MAX_LOST_NS = 10**9
# `make test-kills` runs more of them, at other moments.
KILLS, KILLS_SEED = int(os.environ.get("OPWATCH_KILLS", "3")), int(os.environ.get("OPWATCH_SEED", "14"))


def read_entries(path: Path) -> list[RunEntry]:
    kept = RecordedRun(path)
    try:
        return list(kept.iter_entries())
    finally:
        kept.close()


@contextmanager
def write_repeatedly(node: str) -> Iterator[None]:
    """Write to the disk repeatedly until the block ends."""
    script = (
        f"while :; do dd if=/dev/zero of={node} bs=16k count=40 oflag=direct status=none; sleep 0.02; done"
    )
    with subprocess.Popen(["sh", "-c", script], start_new_session=True) as shell:
        try:
            yield
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


@pytest.mark.parametrize("form", [("--plain",), ("--json",), ("--json", "-q")])
def test_replay_prints_the_live_output(disk: ScratchDisk, tmp_path: Path, form: tuple[str, ...]) -> None:
    path = tmp_path / "run.opw"
    with write_repeatedly(disk.node):
        live = run_opwatch("--dev", disk.node, *form, "-o", str(path), "--queue", "0.2", "7")
    assert live.returncode == 0, live.stderr
    replayed = run_opwatch("replay", *form, str(path))
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout == live.stdout
    assert os.listdir(tmp_path) == ["run.opw"]
    assert len(live.stdout.splitlines()) >= (1 if "-q" in form else 8)


def test_replay_step_sums_the_recorded_intervals(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    with write_repeatedly(disk.node):
        recorded = run_opwatch(
            "record", "--dev", disk.node, "-o", str(path), "--every", "0.1", "--for", "1.2"
        )
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout == ""
    short, long = (
        parse_lines(run_opwatch("replay", "--json", str(path), *step).stdout) for step in ((), ("0.4",))
    )
    assert [document["type"] for document in short] == ["interval"] * 12 + ["summary"]
    # A busy machine takes some samples late; a longer interval then covers fewer of them.
    assert 3 <= len(long) - 1 < 12
    begins = [document["begin_mono_ns"] for document in short[:12]]
    ends = [document["end_mono_ns"] for document in short[:12]]
    for document in long[:-1]:
        parts = short[begins.index(document["begin_mono_ns"]) : ends.index(document["end_mono_ns"]) + 1]
        assert document["ops"]["write"]["count"] == sum(part["ops"]["write"]["count"] for part in parts)
        assert document["ops"]["write"]["bytes"] == sum(part["ops"]["write"]["bytes"] for part in parts)
    assert (long[0]["begin_mono_ns"], long[-2]["end_mono_ns"]) == (begins[0], ends[-1])
    assert sum(document["ops"]["write"]["count"] for document in long[:-1]) > 0
    assert long[-1] == short[-1]


def test_replay_of_a_part_has_its_own_summary(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    with write_repeatedly(disk.node):
        done = run_opwatch("record", "--dev", disk.node, "-o", str(path), "--every", "0.1", "--for", "1")
    assert done.returncode == 0, done.stderr
    whole = parse_lines(run_opwatch("replay", "--json", str(path)).stdout)

    def format_offset_after(interval: int) -> str:
        """Return an offset in the middle of the interval after `interval`."""
        begin_ns, end_ns = (whole[interval + 1][f"{edge}_mono_ns"] for edge in ("begin", "end"))
        return f"{((begin_ns + end_ns) / 2 - whole[0]['begin_mono_ns']) / 1e6:.3f}ms"

    part = parse_lines(
        run_opwatch(
            "replay", "--json", str(path), "--from", format_offset_after(1), "--to", format_offset_after(5)
        ).stdout
    )
    assert part[:-1] == whole[2:6]
    assert part[-1]["type"] == "summary"
    counts = [document["ops"]["write"]["count"] for document in part]
    assert sum(counts[:-1]) == counts[-1]
    assert (
        parse_lines(run_opwatch("replay", "--json", str(path), "--at", format_offset_after(3)).stdout)
        == whole[4:5]
    )
    assert run_opwatch("replay", str(path), "--at", "1h").returncode == 6
    assert run_opwatch("replay", str(path), "50ms").returncode == 2


def test_recording_contains_the_command_and_its_cpu_time(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    done = run_opwatch("record", "--dev", disk.node, "-o", str(path), "--", "sh", "-c", "echo said; exit 5")
    assert (done.returncode, done.stdout) == (5, "said\n")
    kept = RecordedRun(path)
    *events, taken = kept.events
    assert [(event.kind, event.words, event.status) for event in events] == [
        ("command started", "sh -c 'echo said; exit 5'", None),
        ("command ended", "sh -c 'echo said; exit 5'", 5),
    ]
    spent = find_command_cpu(kept)
    assert taken.kind == COMMAND_CPU and spent
    assert 0 < spent.total_s < 5
    samples = [one for entry in kept.iter_entries() for one in get_samples(entry).values()]
    assert all(one.cpu and one.cpu.cpus == os.cpu_count() for one in samples)
    assert kept.trailer
    assert "command" in kept.trailer.reason
    kept.close()


@pytest.mark.parametrize(("more", "status"), [((), 0), (("--for", "1h"), 7)])
def test_a_signal_leaves_a_valid_recording(
    disk: ScratchDisk, tmp_path: Path, more: tuple[str, ...], status: int
) -> None:
    path = tmp_path / "run.opw"
    argv = [*OPWATCH, "record", "--dev", disk.node, "-o", str(path), "--every", "0.1", *more]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as recorder:
        assert recorder.stderr
        assert str(path) in recorder.stderr.readline()
        time.sleep(0.5)
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(60) == status
    kept = RecordedRun(path)
    assert kept.trailer
    assert kept.trailer.reason == "a signal"
    assert type(list(kept.iter_entries())[-1]).__name__ == "RunEnded"
    kept.close()


def test_killed_recorder_loses_at_most_a_second(disk: ScratchDisk, tmp_path: Path) -> None:
    chance = random.Random(KILLS_SEED)
    for number in range(KILLS):
        path = tmp_path / f"{number}.opw"
        argv = [*OPWATCH, "--dev", disk.node, "-o", str(path), "--json", "0.05"]
        with write_repeatedly(disk.node), subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout
            shown = [json.loads(watch.stdout.readline())]
            while time.monotonic_ns() < shown[0]["end_mono_ns"] + chance.uniform(0.1, 2.5) * 1e9:
                shown.append(json.loads(watch.stdout.readline()))
            killed_ns = time.monotonic_ns()
            watch.kill()
        samples = [sample for entry in read_entries(path) for sample in get_samples(entry).values()]
        kept = {sample.reading.sample.end_ns for sample in samples}
        known = [document["end_mono_ns"] for document in shown]
        assert [end_ns for end_ns in known if end_ns < killed_ns - MAX_LOST_NS and end_ns not in kept] == []
        assert kept
        replayed = run_opwatch("replay", "--json", str(path))
        assert replayed.returncode == 0, replayed.stderr
        assert "was killed" in replayed.stderr
        documents = parse_lines(replayed.stdout)
        assert documents.pop()["type"] == "summary"
        both = min(len(documents), len(shown))
        assert documents[:both] == shown[:both]


def test_full_disk_ends_the_recording_but_not_the_command(disk: ScratchDisk, tmp_path: Path) -> None:
    with ScratchDisk(4 << 20) as small:
        make_filesystem("ext4", small.node, "-O", "^has_journal", "-N", "16", "-m", "0")
        point = tmp_path / "small"
        point.mkdir()
        with mount_device(small.node, point):
            fill_space(point / "ballast", left=80 << 10)
            path = point / "run.opw"
            with write_repeatedly(disk.node):
                done = run_opwatch(
                    *("record", "--dev", disk.node, "-o", str(path), "--every", "0.01"),
                    *("--", "sh", "-c", "sleep 8; echo whole"),
                )
            assert done.stdout == "whole\n", done.stderr
            assert done.returncode == 1
            assert done.stderr.count("the recording ends here") == 1, done.stderr
            # The words of SQLite, or of the system.
            assert re.search(rf"\bfull\b|{os.strerror(errno.ENOSPC)}", done.stderr)
            assert "Traceback" not in done.stderr
            # The recording can be read on the full disk itself.
            assert len(read_entries(path)) > 10


def test_record_does_not_write_through_planted_links(disk: ScratchDisk, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    path = tmp_path / "run.opw"
    path.symlink_to(target)
    for planted in (path, tmp_path / "new.opw-wal"):
        if not planted.is_symlink():
            planted.symlink_to(target)
        done = run_opwatch(
            "record", "--dev", disk.node, "-o", str(planted).removesuffix("-wal"), "--for", "0.1"
        )
        assert done.returncode == 3, done.stderr
        assert str(planted) in done.stderr
    assert target.read_text() == "precious"


def test_record_reports_a_missing_folder(disk: ScratchDisk, tmp_path: Path) -> None:
    done = run_opwatch("record", "--dev", disk.node, "-o", str(tmp_path / "no/run.opw"), "--for", "0.1")
    assert (done.returncode, "cannot create" in done.stderr) == (1, True), done.stderr


def test_record_warns_when_its_file_is_on_the_watched_disk(tmp_path: Path) -> None:
    with ScratchDisk(32 << 20) as small:
        make_filesystem("ext4", small.node)
        point = tmp_path / "small"
        point.mkdir()
        with mount_device(small.node, point):
            done = run_opwatch("record", "--dev", small.node, "-o", str(point / "run.opw"), "--for", "0.1")
            assert done.returncode == 0, done.stderr
            assert f" on {small.name}, " in done.stderr
            other = run_opwatch(
                "record", "--dev", small.node, "-o", str(tmp_path / "run.opw"), "--for", "0.1"
            )
            assert f" on {small.name}, " not in other.stderr


def test_replay_refuses_other_files(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no recording\n" * 500)
    for path in (tmp_path / "text", tmp_path):
        done = run_opwatch("replay", str(path))
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
    with pytest.raises(BadInput):
        RecordedRun(tmp_path / "text")
    assert run_opwatch("replay", str(tmp_path / "nothing")).returncode == 2
