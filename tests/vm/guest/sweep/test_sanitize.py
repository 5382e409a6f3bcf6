"""Levels that start with a sanitize, on a target with the command, through Linux's own driver. The target
logs each sanitize and the bytes then allocated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from opwatch.journal.file import list_journals, reopen_sweep_journal
from opwatch.journal.state import SweepState
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.copies import run_opwatch, start_opwatch
from tests.vm.guest.target import local
from tests.vm.guest.target.drive import SERIAL
from tests.vm.guest.target.host import ConnectedTarget, connect_target
from tests.vm.guest.target.sanitize import CRYPTO, OVERWRITE, SanitizeOrders
from tests.vm.requirements import need_tool

DEVICES = ()
# Sweeps on a target in Python.
TIERS = ()
TIMEOUT_S = 1800
WHOLE, USED = 32 << 20, 4 << 20
_LEVEL = ("--op", "4M", "--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0")
_PURGE = ("--purge", "sanitize")
_STOPPED, _NOT_PROVEN, _UNSUPPORTED = 7, 6, 5
_BLOCK_ERASE, _CRYPTO_ERASE = 2, 4
_INITIAL_LOG = [("create", WHOLE), ("attach", WHOLE)]
_CONTENT = b"what somebody had written".ljust(4096, b".") * 256


def make_arguments(verb: str, folder: Path, *more: str) -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", SERIAL, "--journals", str(folder))
    return ["sweep", verb, *consent, *more]


def run_locally(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return run_opwatch(*argv, main=local.main)


def run_plan(target: ConnectedTarget) -> str:
    done = run_locally(["sweep", "plan", "--dev", *target.list_disks(), "--op", "4M", *_PURGE])
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def read_sweep_state(folder: Path) -> SweepState:
    [name] = list_journals(folder)
    journal, state = reopen_sweep_journal(folder, name)
    journal.close()
    return state


def write_content(target: ConnectedTarget) -> None:
    """Write contents that come from no sweep, and drop them from the page cache."""
    [disk] = target.list_disks()
    descriptor = os.open(f"/dev/{disk}", os.O_WRONLY | os.O_EXCL)
    try:
        # Leave the start empty, because the guard takes a signature for somebody's data.
        os.pwrite(descriptor, _CONTENT, 4 << 20)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def read_new_entries(target: ConnectedTarget) -> list[tuple[str, int]]:
    """Return the log entries since the target was connected."""
    assert target.read_log()[:2] == _INITIAL_LOG
    return target.read_log()[2:]


def wait_for_sanitize(target: ConnectedTarget) -> None:
    sysfs.wait_for("the sanitize", lambda: any(what == "sanitize" for what, _ in target.read_log()))


@pytest.mark.parametrize(
    ("offers", "controllers", "sharing", "why"),
    [
        (0, 1, 0, "does not support Sanitize (SANICAP is 0)"),
        pytest.param(OVERWRITE, 1, 0, "neither block erase nor crypto erase", marks=pytest.mark.manual),
        pytest.param(CRYPTO, 2, 0, "other controllers in its subsystem", marks=pytest.mark.manual),
        pytest.param(CRYPTO, 1, 1, "several controllers (NMIC)", marks=pytest.mark.manual),
    ],
)
def test_drive_that_must_not_be_sanitized_is_left_alone(
    offers: int, controllers: int, sharing: int, why: str, tmp_path: Path
) -> None:
    with connect_target(tmp_path / "target", controllers=controllers, sharing=sharing) as target:
        target.write_orders(sanitize=SanitizeOrders(offers=offers))
        assert why in run_plan(target)
        done = run_locally(make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_PURGE, *_LEVEL))
        assert done.returncode in (_UNSUPPORTED, 3)
        assert why in done.stderr
        assert (read_new_entries(target), list_journals(tmp_path)) == ([], [])


@pytest.mark.manual
def test_a_drive_with_another_namespace_is_left_alone(tmp_path: Path) -> None:
    nvme = need_tool("nvme")
    with connect_target(tmp_path / "target") as target:
        node = f"/dev/{target.find_controller()}"
        subprocess.run([nvme, "create-ns", node, "--nsze=4096", "--ncap=4096", "--flbas=0"], check=True)
        done = run_locally(make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_PURGE, *_LEVEL))
        assert done.returncode == _UNSUPPORTED, done.stderr
        assert "has other namespaces than this one (1), which a sanitize would erase too: 1, 2" in (
            done.stderr
        )
        assert read_new_entries(target) == [("create", 4096 * 512)]


def read_sanitize_kinds(target: ConnectedTarget) -> set[int]:
    """Return the kinds (SANACT) of the sanitizes."""
    lines = [json.loads(line) for line in (target.folder / "log").read_text().splitlines()]
    return {line["namespace"] for line in lines if line["what"].startswith("sanitize")}


def test_each_level_starts_with_a_sanitize(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        target.write_orders(sanitize=SanitizeOrders(offers=0b111))
        write_content(target)
        planned = run_plan(target)
        assert "sanitize the drive" in planned and "would be refused" not in planned
        levels = ("--op", "4M,6M", *_LEVEL[2:])
        done = run_locally(
            make_arguments("run", tmp_path, "--dev", *target.list_disks(), "--json", *_PURGE, *levels)
        )
        assert done.returncode == _NOT_PROVEN, done.stderr
        assert [len(level["rounds"]) for level in json.loads(done.stdout)["levels"]] == [5, 5]
        # By the target's own map, the earlier contents and the first level's data are gone.
        first, gone, second, gone_again = read_new_entries(target)
        assert first == ("sanitize", len(_CONTENT))
        assert (second[0], second[1] >= USED) == ("sanitize", True)
        assert (gone, gone_again) == (("sanitized", 0), ("sanitized", 0))
        assert read_sanitize_kinds(target) == {_BLOCK_ERASE}
        state = read_sweep_state(tmp_path)
        assert (state.request.purge, state.is_ended) == ("sanitize", True)


@pytest.mark.manual
def test_signal_takes_effect_after_the_sanitize(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        target.write_orders(sanitize=SanitizeOrders(offers=CRYPTO, seconds=6))
        argv = make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_PURGE, *_LEVEL)
        with start_opwatch(*argv, main=local.main) as sweep:
            wait_for_sanitize(target)
            sweep.send_signal(signal.SIGINT)
            done = sweep.wait()
        assert done.returncode == _STOPPED, done.stderr
        # The target notes the end when it is asked for the progress after the end.
        assert read_new_entries(target) == [("sanitize", 0), ("sanitized", 0)]
        assert read_sanitize_kinds(target) == {_CRYPTO_ERASE}
        assert read_sweep_state(tmp_path).remaining_levels == (0,)


@pytest.mark.manual
def test_resume_after_a_kill_waits_for_the_sanitize(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        # Runs until the orders change.
        target.write_orders(sanitize=SanitizeOrders(seconds=3600))
        write_content(target)
        argv = make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_PURGE, *_LEVEL)
        with start_opwatch(*argv, main=local.main) as sweep:
            wait_for_sanitize(target)
            sweep.send_signal(signal.SIGKILL)
            assert sweep.wait().returncode == -signal.SIGKILL
        # Meanwhile another run is refused.
        assert "is already being sanitized" in run_plan(target)
        argv = make_arguments("resume", tmp_path, list_journals(tmp_path)[0], "--json")
        with start_opwatch(*argv, main=local.main) as resumption:
            time.sleep(8)
            assert (resumption.is_running, read_new_entries(target)) == (True, [("sanitize", len(_CONTENT))])
            target.write_orders()
            done = resumption.wait()
        assert done.returncode == _NOT_PROVEN, done.stderr
        assert json.loads(done.stdout)["is_ended"] is True
        # The level starts again, because the changes to the drive in the meantime are unknown.
        assert read_new_entries(target) == [
            ("sanitize", len(_CONTENT)),
            ("sanitized", 0),
            ("sanitize", 0),
            ("sanitized", 0),
        ]


@pytest.mark.manual
def test_failed_sanitize_reports_the_drive_state_and_the_command_to_run(tmp_path: Path) -> None:
    nvme = need_tool("nvme")
    with connect_target(tmp_path / "target") as target:
        target.write_orders(sanitize=SanitizeOrders(fails=True))
        write_content(target)
        done = run_locally(make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_PURGE, *_LEVEL))
        node = f"/dev/{target.find_controller()}"
        assert done.returncode == 1, done.stderr
        assert "the sanitize (block erase) failed. The drive refuses reads and writes" in done.stderr
        command = f"nvme sanitize {node} --sanact=2"
        assert command in done.stderr
        assert read_new_entries(target) == [("sanitize", len(_CONTENT)), ("failed", len(_CONTENT))]
        assert "refuses reads and writes until one succeeds: run" in run_plan(target)
        again_argv = make_arguments("resume", tmp_path, list_journals(tmp_path)[0], "--json")
        done = run_locally(again_argv)
        assert (done.returncode, command in done.stderr) == (1, True), done.stderr
        target.write_orders()
        subprocess.run([nvme, *command.split()[1:]], check=True)
        done = run_locally(again_argv)
        assert done.returncode == _NOT_PROVEN, done.stderr
        assert [what for what, _ in read_new_entries(target)[2:]] == ["sanitize", "sanitized"] * 2
