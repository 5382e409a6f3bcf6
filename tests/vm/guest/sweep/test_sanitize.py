"""Levels that start with a sanitize, on a target with the command, through Linux's own driver. The target
logs each sanitize and the bytes then allocated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.sweep.journal.file import again, journals
from opwatch.sweep.journal.state import SweepState
from tests.vm.guest.support import sysfs
from tests.vm.guest.target.drive import SERIAL
from tests.vm.guest.target.host import ConnectedTarget, connected
from tests.vm.guest.target.sanitize import CRYPTO, OVERWRITE, SanitizeOrders
from tests.vm.requirements import need_tool

DEVICES = ()
# Sweeps on a target in Python.
TIERS = ("full",)
TIMEOUT_S = 1800
WHOLE, USED = 32 << 20, 8 << 20
_LEVEL = ("--op", "8M", "--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0")
_PURGE = ("--purge", "sanitize")
_STOPPED, _NOT_PROVEN, _UNSUPPORTED = 7, 6, 5
_BLOCK_ERASE, _CRYPTO_ERASE = 2, 4
_BEGUN = [("create", WHOLE), ("attach", WHOLE)]
_OURS = b"what somebody had written".ljust(4096, b".") * 256


def words(verb: str, folder: Path, *more: str) -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", SERIAL, "--journals", str(folder))
    return [sys.executable, "-m", "tests.vm.guest.target.local", "sweep", verb, *consent, *more]


def call(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)


def plan(target: ConnectedTarget) -> str:
    argv = ["sweep", "plan", "--dev", *target.disks(), "--op", "8M", *_PURGE]
    done = call([sys.executable, "-m", "tests.vm.guest.target.local", *argv])
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def state_of(folder: Path) -> SweepState:
    [name] = journals(folder)
    journal, state = again(folder, name)
    journal.close()
    return state


def written(target: ConnectedTarget) -> None:
    """Write contents that come from no sweep, and drop them from the page cache."""
    [disk] = target.disks()
    descriptor = os.open(f"/dev/{disk}", os.O_WRONLY | os.O_EXCL)
    try:
        # Leave the start empty, because the guard takes a signature for somebody's data.
        os.pwrite(descriptor, _OURS, 4 << 20)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def noted(target: ConnectedTarget) -> list[tuple[str, int]]:
    """Return the log entries since the target was connected."""
    assert target.log()[:2] == _BEGUN
    return target.log()[2:]


def wait_for_begun(target: ConnectedTarget) -> None:
    sysfs.wait_for("the sanitize", lambda: any(what == "sanitize" for what, _ in target.log()))


@pytest.mark.parametrize(
    ("offers", "controllers", "sharing", "why"),
    [
        (0, 1, 0, "offers no Sanitize (SANICAP is 0)"),
        (OVERWRITE, 1, 0, "neither block erase nor crypto erase"),
        (CRYPTO, 2, 0, "other controllers in its subsystem"),
        (CRYPTO, 1, 1, "several controllers (NMIC)"),
    ],
)
def test_a_drive_that_is_not_to_be_sanitized_is_left_alone(
    offers: int, controllers: int, sharing: int, why: str, tmp_path: Path
) -> None:
    with connected(tmp_path / "target", controllers=controllers, sharing=sharing) as target:
        target.order(sanitize=SanitizeOrders(offers=offers))
        assert why in plan(target)
        done = call(words("run", tmp_path, "--dev", *target.disks(), *_PURGE, *_LEVEL))
        assert done.returncode in (_UNSUPPORTED, 3)
        assert why in done.stderr
        assert (noted(target), journals(tmp_path)) == ([], [])


def test_a_drive_with_another_namespace_is_left_alone(tmp_path: Path) -> None:
    nvme = need_tool("nvme")
    with connected(tmp_path / "target") as target:
        node = f"/dev/{target.controller()}"
        subprocess.run([nvme, "create-ns", node, "--nsze=4096", "--ncap=4096", "--flbas=0"], check=True)
        done = call(words("run", tmp_path, "--dev", *target.disks(), *_PURGE, *_LEVEL))
        assert done.returncode == _UNSUPPORTED, done.stderr
        assert "has other namespaces than this one (1), and a sanitize is one of all: there are 1, 2" in (
            done.stderr
        )
        assert noted(target) == [("create", 4096 * 512)]


def kinds(target: ConnectedTarget) -> set[int]:
    """Return the kinds (SANACT) of the sanitizes."""
    lines = [json.loads(line) for line in (target.folder / "log").read_text().splitlines()]
    return {line["namespace"] for line in lines if line["what"].startswith("sanitize")}


def test_each_level_begins_with_a_sanitize(tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        target.order(sanitize=SanitizeOrders(offers=0b111))
        written(target)
        planned = plan(target)
        assert "sanitize the drive" in planned and "would be refused" not in planned
        levels = ("--op", "8M,12M", *_LEVEL[2:])
        done = call(words("run", tmp_path, "--dev", *target.disks(), "--json", *_PURGE, *levels))
        assert done.returncode == _NOT_PROVEN, done.stderr
        assert [len(level["rounds"]) for level in json.loads(done.stdout)["levels"]] == [5, 5]
        # By the target's own map, the earlier contents and the first level's data are gone.
        first, gone, second, gone_again = noted(target)
        assert first == ("sanitize", len(_OURS))
        assert (second[0], second[1] >= USED) == ("sanitize", True)
        assert (gone, gone_again) == (("sanitized", 0), ("sanitized", 0))
        assert kinds(target) == {_BLOCK_ERASE}
        state = state_of(tmp_path)
        assert (state.request.purge, state.is_ended) == ("sanitize", True)


def test_a_signal_is_acted_on_once_it_has_ended(tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        target.order(sanitize=SanitizeOrders(offers=CRYPTO, seconds=6))
        argv = words("run", tmp_path, "--dev", *target.disks(), *_PURGE, *_LEVEL)
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            wait_for_begun(target)
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=120)
        assert process.returncode == _STOPPED, said
        assert time.monotonic() - begun > 4
        assert noted(target) == [("sanitize", 0), ("sanitized", 0)]
        assert kinds(target) == {_CRYPTO_ERASE}
        assert state_of(tmp_path).left == (0,)


def test_killed_in_the_middle_it_is_waited_for_by_the_resumption(tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        # Runs until the orders change.
        target.order(sanitize=SanitizeOrders(seconds=3600))
        written(target)
        argv = words("run", tmp_path, "--dev", *target.disks(), *_PURGE, *_LEVEL)
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            wait_for_begun(target)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        # Meanwhile another run is refused.
        assert "is being sanitized already" in plan(target)
        argv = words("resume", tmp_path, journals(tmp_path)[0], "--json")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as resumption:
            time.sleep(15)
            assert (resumption.poll(), noted(target)) == (None, [("sanitize", len(_OURS))])
            target.order()
            printed, _ = resumption.communicate(timeout=600)
        assert resumption.returncode == _NOT_PROVEN
        assert json.loads(printed)["is_ended"] is True
        # The level starts again, because the changes to the drive in the meantime are unknown.
        assert noted(target) == [
            ("sanitize", len(_OURS)),
            ("sanitized", 0),
            ("sanitize", 0),
            ("sanitized", 0),
        ]


def test_one_that_fails_says_what_the_drive_does_and_what_to_run(tmp_path: Path) -> None:
    nvme = need_tool("nvme")
    with connected(tmp_path / "target") as target:
        target.order(sanitize=SanitizeOrders(fails=True))
        written(target)
        done = call(words("run", tmp_path, "--dev", *target.disks(), *_PURGE, *_LEVEL))
        node = f"/dev/{target.controller()}"
        assert done.returncode == 1, done.stderr
        assert "the sanitize (block erase) failed. The drive refuses reads and writes" in done.stderr
        command = f"nvme sanitize {node} --sanact=2"
        assert command in done.stderr
        assert noted(target) == [("sanitize", len(_OURS)), ("failed", len(_OURS))]
        assert "refuses reads and writes until that succeeds" in plan(target)
        again_argv = words("resume", tmp_path, journals(tmp_path)[0], "--json")
        done = call(again_argv)
        assert (done.returncode, command in done.stderr) == (1, True), done.stderr
        target.order()
        subprocess.run([nvme, *command.split()[1:]], check=True)
        done = call(again_argv)
        assert done.returncode == _NOT_PROVEN, done.stderr
        assert [what for what, _ in noted(target)[2:]] == ["sanitize", "sanitized"] * 2
