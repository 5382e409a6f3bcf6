"""Recordings that are continued, given up or refused."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opwatch.collectors.history.recorder import HistoryRecorder
from opwatch.host.device import Devices
from opwatch.host.scratch import ScratchDisk
from opwatch.recording.reading.history import read_history
from opwatch.trim.history.sectormap import SectorState
from tests.kernel.support.drives import MIB, run
from tests.kernel.support.load import discards, flushes, reads, writes
from tests.kernel.support.loops import create_private_loop
from tests.kernel.support.recordings import record_load, run_command, start_recorder
from tests.kernel.support.watching import ATTEMPTS, run_opwatch

# --- between recordings ---


def _count_known(path: Path) -> dict[SectorState, int]:
    saved, _ = read_history(path)
    return {
        state: saved.map.collect_extents(state).total_bytes
        for state in (SectorState.WRITTEN, SectorState.TRIMMED)
    }


def _record_initial(disk: ScratchDisk, path: Path) -> dict[SectorState, int]:
    def run_load() -> None:
        discards(disk.node, 3)
        writes(disk.node, 11, start=64 * MIB)

    record_load(disk.node, path, run_load)
    assert _count_known(path) == {SectorState.WRITTEN: 11 * 4096, SectorState.TRIMMED: 3 << 19}
    return _count_known(path)


def _write_and_discard(node: str) -> None:
    writes(node, 1)
    discards(node, 1)


GAPS: dict[str, tuple[Callable[[str], None], set[SectorState]]] = {
    "nothing": (lambda _: None, {SectorState.WRITTEN, SectorState.TRIMMED}),
    "reads": (lambda node: reads(node, 5), {SectorState.WRITTEN, SectorState.TRIMMED}),
    "flushes": (lambda node: flushes(node, 3), {SectorState.WRITTEN, SectorState.TRIMMED}),
    "writes": (lambda node: writes(node, 1), {SectorState.WRITTEN}),
    "discards": (lambda node: discards(node, 1), {SectorState.TRIMMED}),
    "both": (_write_and_discard, set()),
}


@pytest.mark.parametrize("what", GAPS)
def test_gap_keeps_only_states_that_cannot_have_changed(what: str, disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    before = _record_initial(disk, path)
    load, kept = GAPS[what]
    load(disk.node)
    expected = {state: size if state in kept else 0 for state, size in before.items()}
    measured = run_command("stale", "--dev", disk.node, "--history", str(path))
    assert measured["stale_bytes"]["low"] == expected[SectorState.WRITTEN]
    assert measured["unknown_bytes"] == measured["free_bytes"] - sum(expected.values())
    assert measured["notes"] and bool(measured["drives"][0]["doubts"]) is (len(kept) < 2)
    done = run_command("record", "--dev", disk.node, "-o", str(path), "--for", "0.3")
    assert (done["written_bytes"], done["trimmed_bytes"]) == tuple(expected.values())
    assert ("still" in done["kept"]) is (len(kept) == 2)
    assert _count_known(path) == expected


def test_continued_recording_keeps_no_state_when_none_was_known(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    kept = [
        run_command("record", "--dev", disk.node, "-o", str(path), "--for", "0.2")["kept"] for _ in range(2)
    ]
    assert kept == ["a new history", "the file had no known sectors"]


def test_recording_is_continued_after_its_recorder_was_killed(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    for _ in range(ATTEMPTS):
        with start_recorder(disk.node, path) as process:
            writes(disk.node, 11)
            time.sleep(2)
            process.kill()
            process.wait()
        if not read_history(path)[0].look.forgotten:
            break
        path.unlink()
    assert _count_known(path)[SectorState.WRITTEN] == 11 * 4096
    done = run_command("record", "--dev", disk.node, "-o", str(path), "--for", "0.2")
    assert done["written_bytes"] == 11 * 4096
    with start_recorder(disk.node, path) as process:
        writes(disk.node, 1, start=MIB)
        process.kill()
        process.wait()
        # The write may not have been seen in time; sectors recorded as written stay written.
    done = run_command("record", "--dev", disk.node, "-o", str(path), "--for", "0.2")
    assert done["written_bytes"] in (11 * 4096, 12 * 4096)


def test_recorded_state_is_dropped_when_the_disk_was_detached(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with create_private_loop(64 * MIB) as loop:
        record_load(loop.node, path, lambda: writes(loop.node, 3))
        loop.detach()
        loop.attach(loop.first)
        measured = run_command("stale", "--dev", loop.node, "--history", str(path))
        done = run_command("record", "--dev", loop.node, "-o", str(path), "--for", "0.2")
        assert measured["stale_bytes"] == {"value": None, "low": 0, "high": 64 * MIB}
        [doubt] = measured["drives"][0]["doubts"]
        assert "removed" in doubt
        assert done["unknown_bytes"] == 64 * MIB
        assert "removed" in done["kept"]


# --- refusals ---


@contextlib.contextmanager
def _mount_full(folder: Path) -> Iterator[Path]:
    """Yield a full file system."""
    folder.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder))
    try:
        (folder / "filler").write_bytes(bytes(65536))
        yield folder
    finally:
        run("umount", str(folder))


def run_refused(*words: str) -> tuple[int, str]:
    done = run_opwatch("trim", *words)
    assert not done.stdout
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_record_and_stale_refuse_unsuitable_files_and_disks(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert run_refused("record")[0] == 2
    assert run_refused("record", "--dev", "nonexistent")[0] == 2
    path.write_text("a letter")
    status, words = run_refused("record", "--dev", disk.node, "-o", str(path))
    assert (status, "not a history" in words) == (3, True), words
    status, words = run_refused("stale", "--dev", disk.node, "--history", str(path))
    assert (status, f"{path} is not" in words) == (1, True), words
    status, words = run_refused("stale", "--dev", disk.node, "--history", str(tmp_path / "none"))
    assert (status, os.strerror(errno.ENOENT) in words) == (1, True), words
    path.unlink()
    with start_recorder(disk.node, path):
        status, words = run_refused("record", "--dev", disk.node, "-o", str(path))
        assert (status, "another opwatch" in words) == (3, True), words
    with ScratchDisk(64 * MIB) as other:
        status, words = run_refused("record", "--dev", other.node, "-o", str(path))
        assert (status, "another drive" in words) == (3, True), words
        status, words = run_refused("stale", "--dev", other.node, "--history", str(path))
        assert (status, "no history given" in words) == (6, True), words


def test_record_reports_unwritable_output_paths(disk: ScratchDisk, tmp_path: Path) -> None:
    none = tmp_path / "none"
    status, words = run_refused("record", "--dev", disk.node, "-o", str(none / "x"))
    assert (status, f" {none} " in words, none.exists()) == (1, True, False), words
    status, words = run_refused("record", "--dev", disk.node, "-o", "")
    assert (status, "empty" in words) == (2, True), words
    with _mount_full(tmp_path / "full") as folder:
        status, words = run_refused("record", "--dev", disk.node, "-o", str(folder / "x"))
        assert (status, "disk is full" in words) == (1, True), words
        assert [file.name for file in folder.iterdir()] == ["filler"]


def test_record_is_unsupported_when_iostats_are_off(disk: ScratchDisk, tmp_path: Path) -> None:
    switch = Path(f"/sys/block/{disk.name}/queue/iostats")
    switch.write_text("0")
    try:
        status, words = run_refused("record", "--dev", disk.node, "-o", str(tmp_path / "x"))
    finally:
        switch.write_text("1")
    assert (status, "iostats" in words) == (5, True), words


def test_record_ends_when_iostats_are_switched_off(disk: ScratchDisk, tmp_path: Path) -> None:
    """The counts no longer change with writes, so nothing in the recording may be believed afterwards."""
    path = tmp_path / "x"
    switch = Path(f"/sys/block/{disk.name}/queue/iostats")
    try:
        with start_recorder(disk.node, path) as process:
            writes(disk.node, 3)
            switch.write_text("0")
            _, words = process.communicate(timeout=30)
    finally:
        switch.write_text("1")
    assert (process.returncode, "disabled" in words, "Traceback" in words) == (1, True, False), words
    assert _count_known(path) == {SectorState.WRITTEN: 0, SectorState.TRIMMED: 0}


def test_record_ends_when_its_disk_disappears(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with ScratchDisk(64 * MIB) as disk:
        with start_recorder(disk.node, path) as process:
            writes(disk.node, 3)
            time.sleep(1.5)
            disk.detach()
            _, words = process.communicate(timeout=30)
        assert process.returncode == 1
        assert "is gone" in words
        assert "Traceback" not in words
    read_history(path)


def test_record_passes_on_the_exit_status_of_its_command(disk: ScratchDisk, tmp_path: Path) -> None:
    words = ["record", "--dev", disk.node, "-o", str(tmp_path / "x"), "--json", "--", "sh", "-c", "exit 7"]
    done = run_opwatch("trim", *words)
    assert done.returncode == 7
    assert json.loads(done.stdout)["file"] == str(tmp_path / "x")


# --- changes to the file during the recording ---


def _replace_file(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


@pytest.mark.parametrize(
    "harm", [Path.unlink, lambda path: os.truncate(path, 0), _replace_file], ids=["gone", "cut", "swapped"]
)
def test_history_file_is_rewritten_after_outside_changes(
    harm: Callable[[Path], None], disk: ScratchDisk, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    lines: list[str] = []
    recording = HistoryRecorder(Devices(), Devices().resolve(disk.node), path, lines.append)
    try:
        for step in range(3):
            if step:
                harm(path)
            writes(disk.node, 5, start=step * MIB)
            time.sleep(1.1)
            assert recording.process_changes()
            recording.save_changes()
            assert recording.was_disturbed is bool(step)
            assert (
                _count_known(path)[SectorState.WRITTEN]
                == recording.history.map.collect_extents(SectorState.WRITTEN).total_bytes
                > 0
            )
        harm(path)
    finally:
        recording.close()
    assert len(lines) == 1
    assert "rewrites" in lines[0]
    assert (
        _count_known(path)[SectorState.WRITTEN]
        == recording.history.map.collect_extents(SectorState.WRITTEN).total_bytes
    )


def test_deleted_history_file_is_reported_once(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    words = "for _ in 1 2 3; do rm -f $0; dd if=/dev/zero of=$1 bs=4k count=1 oflag=direct; sleep 1.2; done"
    command = ["--", "sh", "-c", words, str(path), disk.node]
    done = run_opwatch("trim", "record", "--dev", disk.node, "-o", str(path), *command)
    assert (done.returncode, done.stderr.count("rewrites")) == (0, 1), done.stderr
    assert path.exists()


def test_file_in_place_of_the_history_is_left_alone(disk: ScratchDisk, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with start_recorder(disk.node, path) as process:
        path.unlink()
        path.write_text("a letter")
        writes(disk.node, 5)
        _, words = process.communicate(timeout=30)
    assert (process.returncode, "not a history" in words, "Traceback" in words) == (3, True, False), words
    assert path.read_text() == "a letter"
    path.unlink()
    with ScratchDisk(64 * MIB) as other, start_recorder(disk.node, path) as process:
        path.unlink()
        with start_recorder(other.node, path):
            writes(disk.node, 5)
            _, words = process.communicate(timeout=30)
            assert (process.returncode, "another opwatch" in words) == (3, True), words
            assert read_history(path)[0].drive.name == other.name


@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_unwritable_history_does_not_end_the_command(
    json_: list[str], disk: ScratchDisk, tmp_path: Path
) -> None:
    with _mount_full(tmp_path / "full") as folder:
        (folder / "filler").unlink()
        done_file = tmp_path / "done"
        words = (
            "rm $0; echo a letter > $0; dd if=/dev/zero of=$1 bs=4k count=1 oflag=direct; sleep 1.5; "
            "dd if=/dev/zero of=$1 bs=4k count=1 seek=9 oflag=direct; sleep 1.5; echo done > $2; exit 7"
        )
        path = folder / "x"
        command = ["--", "sh", "-c", words, str(path), disk.node, str(done_file)]
        done = run_opwatch("trim", "record", "--dev", disk.node, "-o", str(path), *json_, *command)
        assert path.read_text() == "a letter\n"
    assert done_file.read_text() == "done\n"
    assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (1, "", False), done.stderr
    assert done.stderr.count("the recording has ended, sh goes on") == 1, done.stderr
    assert "not a history" in done.stderr


def test_full_disk_ends_the_recording_but_not_the_command(disk: ScratchDisk, tmp_path: Path) -> None:
    with _mount_full(tmp_path / "full") as folder:
        (folder / "filler").unlink()
        script = (
            "import os, sys, time; from pathlib import Path; from tests.kernel.support.load import writes\n"
            "os.system(f'cat /dev/zero > {sys.argv[1]}/filler 2>/dev/null')\n"
            "writes(sys.argv[2], 500, step=8192); time.sleep(2); Path(sys.argv[3]).write_text('done')"
        )
        command = ["--", sys.executable, "-c", script, str(folder), disk.node, str(tmp_path / "done")]
        done = run_opwatch("trim", "record", "--dev", disk.node, "-o", str(folder / "x"), *command)
        assert (done.returncode, "disk is full" in done.stderr) == (1, True), done.stderr
        assert (tmp_path / "done").read_text() == "done"
        # The recording up to that point is valid.
        read_history(folder / "x")
