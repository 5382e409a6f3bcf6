"""Levels on a mounted file system: the sweep touches no other files and removes its own."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opwatch.ftl import models
from opwatch.ftl.drive import Policy
from opwatch.journal.file import list_journals
from tests.kernel.support.drives import MIB, Drive, create_drive, run
from tests.kernel.support.filesystems import fill_space, make_filesystem, mount_device
from tests.kernel.support.open_files import find_users
from tests.kernel.sweep.test_sweep import _NOT_REACHED, parse_levels, read_sweep_state

_PAGES = 256
_SIZE = 512 * MIB
_SHORT = ("--op", "20,50%", "--settle", "0", "--rounds", "5", "--refresh", "0", "--fill", "1")


@contextlib.contextmanager
def mount_filesystem(target: Drive, folder: Path, kind: str = "ext4") -> Iterator[Path]:
    point = folder / "point"
    point.mkdir()
    # Disable deferred initialization, which would count as the file system's own writes.
    later = "nodiscard,lazy_itable_init=0,lazy_journal_init=0"
    make_filesystem(kind, target.device, *(["-E", later] if kind == "ext4" else []))
    with mount_device(target.device, point):
        os.sync()
        yield point


def make_arguments(verb: str, target: Drive, folder: Path, *more: str) -> list[str]:
    consent = (
        "--confirm",
        target.read_truth()["serial"],
        "--allow-virtual",
        "--journals",
        str(folder / "kept"),
    )
    return [sys.executable, "-m", "opwatch", "sweep", verb, *consent, "-q", "--json", *more]


def run_sweep(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)


def make_place_options(target: Drive, point: Path, method: str = "file") -> tuple[str, ...]:
    return ("--dev", target.device, "--method", method, "--dir", str(point))


def hash_contents(point: Path) -> dict[str, str]:
    return {
        str(path.relative_to(point)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        for path in sorted(point.rglob("*"))
    }


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("ext4", "file"),
        pytest.param("xfs", "file", marks=pytest.mark.manual),
        ("ext4", "fill"),
    ],
)
def test_other_files_are_kept_and_host_writes_are_counted_three_ways(
    kind: str, method: str, tmp_path: Path
) -> None:
    with create_drive(_SIZE, "20%") as target, mount_filesystem(target, tmp_path, kind) as point:
        (point / "theirs").write_bytes(os.urandom(5 * MIB))
        (point / "load").write_text("of somebody else")
        os.sync()
        before, written = hash_contents(point), target.read_truth()["host_write_bytes"]
        done = run_sweep(
            make_arguments("run", target, tmp_path, *make_place_options(target, point, method), *_SHORT)
        )
        assert done.returncode == _NOT_REACHED, done.stderr
        assert hash_contents(point) == before
        grown = target.read_truth()["host_write_bytes"] - written
        left = target.read_truth()["valid_bytes"]
    levels = parse_levels(done.stdout)
    asked = 0
    for level in levels:
        files, figures = level["files"], level["figures"]
        assert (
            files["least_used_bytes"]
            < level["used_bytes"]
            == pytest.approx(_SIZE / _parse_op(level), abs=MIB)
        )
        assert level["of_used_ratio"] < files["most_of_used_ratio"]
        assert figures["host"]["firmware"] == pytest.approx(figures["host"]["fio"], rel=0.01)
        asked += files["least_used_bytes"] + sum(one["host_bytes"] for one in level["rounds"])
        coverage = next(one for one in level["opwatch"]["checks"] if one["name"] == "coverage")
        assert coverage["is_met"], coverage
    # The file system's own writes are few, and the drive counts them too.
    assert asked <= grown <= 1.02 * asked
    assert len({level["files"]["load_bytes"] for level in levels}) == (1 if method == "fill" else 2)
    # The sweep's data is trimmed: the drive only holds the file system again.
    assert left < _SIZE / 4
    state = read_sweep_state(tmp_path / "kept")
    assert (state.undo, state.is_ended) == ([], True)


def _parse_op(level: dict[str, Any]) -> float:
    return 1 + float(level["label"].removesuffix(" %")) / 100


@pytest.mark.parametrize("policy", [Policy.GREEDY, pytest.param(Policy.FIFO, marks=pytest.mark.manual)])
def test_waf_of_a_file_matches_the_exact_model(policy: Policy, tmp_path: Path) -> None:
    """The file system's own blocks may be on the drive or not, so the model gives an interval. A FIFO also
    moves those blocks, which are not writes of the file."""
    config = {"policy": policy, "superblock_bytes": _PAGES * 4096}
    with create_drive(_SIZE, "12%", config=config) as target, mount_filesystem(target, tmp_path) as point:
        flash = target.read_truth()["physical_bytes"]
        # A sequentially filled FIFO oscillates for fifteen rounds before it reaches steady state.
        rounds = "60" if policy is Policy.FIFO else "30"
        pace = ("--op", "14,28%", "--rounds", rounds, "--settle", "0", "--refresh", "0", "--fill", "1")
        done = run_sweep(make_arguments("run", target, tmp_path, *make_place_options(target, point), *pace))
        assert done.returncode in (0, 6), done.stderr
    for level in parse_levels(done.stdout):
        size, own = level["files"]["load_bytes"], level["used_bytes"] - level["files"]["load_bytes"]
        if policy is Policy.GREEDY:
            least, most = (
                models.predict_greedy(flash / size, _PAGES),
                models.predict_greedy((flash - own) / size, _PAGES),
            )
        else:
            least = models.predict_fifo(flash / size)
            most = models.predict_fifo((flash - own) / size) * flash / (flash - own)
        assert least * 0.99 <= level["figures"]["waf"] <= most * 1.01
        met = {check["name"]: check["is_met"] for check in level["opwatch"]["checks"]}
        assert met["host writes"] and met["coverage"]


def start_sweep(target: Drive, folder: Path, point: Path) -> subprocess.Popen[str]:
    """Start a sweep, and return the process once it writes to its file."""
    argv = make_arguments("run", target, folder, *make_place_options(target, point), *_SHORT)
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(point.glob(".opwatch-sweep-*/load")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    time.sleep(0.5)
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_no_file(number: signal.Signals, tmp_path: Path) -> None:
    with create_drive(_SIZE, "20%") as target, mount_filesystem(target, tmp_path) as point:
        before = hash_contents(point)
        with start_sweep(target, tmp_path, point) as process:
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
        assert process.returncode == 7, said
        assert "opwatch sweep resume" in said
        assert (hash_contents(point), find_users(point)) == (before, [])
        assert read_sweep_state(tmp_path / "kept").undo == []


def test_resume_after_a_kill_deletes_only_its_own_file(tmp_path: Path) -> None:
    with create_drive(_SIZE, "20%") as target, mount_filesystem(target, tmp_path) as point:
        before = hash_contents(point)
        with start_sweep(target, tmp_path, point) as process:
            process.send_signal(signal.SIGKILL)
        [name] = list_journals(tmp_path / "kept")
        [folder] = point.glob(".opwatch-sweep-*")
        assert folder.name == f".opwatch-sweep-{name}"
        # Another user's file in the folder must not be deleted.
        (folder / "theirs").write_text("of somebody else")
        again = make_arguments("resume", target, tmp_path, name)
        done = run_sweep(again)
        assert done.returncode == 1
        assert f"{folder} " in done.stderr and f"({os.strerror(errno.ENOTEMPTY)})" in done.stderr
        assert (folder / "theirs").exists()
        (folder / "theirs").unlink()
        done = run_sweep(again)
        assert done.returncode == _NOT_REACHED, done.stderr
        assert hash_contents(point) == before
        assert [len(level["rounds"]) for level in parse_levels(done.stdout)] == [5, 5]


def test_dead_drive_ends_the_sweep_and_names_the_remaining_files(tmp_path: Path) -> None:
    with create_drive(_SIZE, "20%") as target, mount_filesystem(target, tmp_path) as point:
        with start_sweep(target, tmp_path, point) as process:
            target.kill_server()
            _, said = process.communicate(timeout=60)
        assert process.returncode == 1, said
        assert f"{point}/.opwatch-sweep-" in said
        assert "resume" in said and "Traceback" not in said
        [undo] = read_sweep_state(tmp_path / "kept").undo
        assert undo.startswith("files in .opwatch-sweep-")


def test_resume_is_refused_when_another_filesystem_is_mounted(tmp_path: Path) -> None:
    with create_drive(_SIZE, "20%") as target:
        with mount_filesystem(target, tmp_path) as point, start_sweep(target, tmp_path, point) as process:
            process.send_signal(signal.SIGKILL)
            process.wait()
        [name] = list_journals(tmp_path / "kept")
        done = run_sweep(make_arguments("resume", target, tmp_path, name))
        assert done.returncode == 3
        assert "is not a mount point" in done.stderr
        run("mount", "-t", "tmpfs", "none", str(point))
        try:
            done = run_sweep(make_arguments("resume", target, tmp_path, name))
        finally:
            run("umount", str(point))
        assert done.returncode == 3
        assert "is not on" in done.stderr


def check_refused(argv: list[str], status: int, words_of_it: str) -> None:
    done = run_sweep(argv)
    assert done.returncode == status, done.stderr
    assert words_of_it in done.stderr
    assert "Traceback" not in done.stderr


def test_sweep_writes_only_to_the_mount_of_the_named_drive(tmp_path: Path) -> None:
    with create_drive(_SIZE, "20%") as target, create_drive(64 * MIB, "20%") as other:
        with mount_filesystem(target, tmp_path) as point:
            (point / "folder").mkdir()
            bound = tmp_path / "bound"
            bound.mkdir()
            os.sync()
            before = target.read_truth()
            argv = make_arguments("run", target, tmp_path, *make_place_options(target, point), *_SHORT)
            check_refused(
                [word if word != str(point) else str(point / "folder") for word in argv], 3, "mount point"
            )
            check_refused([word if word != target.device else other.device for word in argv], 3, "not of")
            check_refused(
                [word if word != before["serial"] else "S1" for word in argv], 3, "not its serial number"
            )
            check_refused([word for word in argv if word != "--allow-virtual"], 3, "add --allow-virtual")
            run("mount", "--bind", str(point / "folder"), str(bound))
            check_refused(
                [word if word != str(point) else str(bound) for word in argv], 3, "only its folder /folder"
            )
            run("umount", str(bound))
            check_refused([*argv, "--purge", "discard"], 2, "--purge: only with")
            run("mount", "-o", "remount,ro", str(point))
            check_refused(argv, 3, "read-only")
            after = target.read_truth()
            assert after["trim_bytes"] == before["trim_bytes"]
        assert list_journals(tmp_path / "kept") == []


def test_plan_lists_refusals_and_writes_no_byte(tmp_path: Path) -> None:
    with create_drive(_SIZE, "20%") as target, mount_filesystem(target, tmp_path) as point:
        before = target.read_truth()
        argv = [
            sys.executable,
            "-m",
            "opwatch",
            "sweep",
            "plan",
            *make_place_options(target, point),
            "--op",
            "20%",
        ]
        done = run_sweep(argv)
        assert done.returncode == 0, done.stderr
        assert "add --allow-virtual" in " ".join(done.stdout.split())
        assert done.stdout.endswith("nothing was written\n")
        planned = json.loads(run_sweep([*argv, "--json", "--allow-virtual"]).stdout)
        assert planned["refusals"] == []
        after = target.read_truth()
        for key in ("host_write_bytes", "trim_bytes"):
            assert after[key] == before[key]
        # If a level needs more than exists, the refusal names the available size.
        check_refused([*argv[:-1], "0%"], 2, "use at least")
        fill_space(point / "theirs", 40 * MIB)
        os.sync()
        check_refused(argv, 2, "belong to the filesystem and other files")


def test_resume_is_refused_when_other_files_have_changed(tmp_path: Path) -> None:
    """Other files may change between levels, but then the next level would not be the planned one."""
    with create_drive(_SIZE, "20%") as target, mount_filesystem(target, tmp_path) as point:
        with start_sweep(target, tmp_path, point) as process:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
        fill_space(point / "theirs", 300 * MIB)
        os.sync()
        [name] = list_journals(tmp_path / "kept")
        check_refused(make_arguments("resume", target, tmp_path, name), 1, "no space for a file of")
        (point / "theirs").write_bytes(bytes(20 * MIB))
        os.sync()
        check_refused(
            make_arguments("resume", target, tmp_path, name), 3, "other files were added or deleted"
        )
        assert list(point.glob(".opwatch-sweep-*")) == []
