"""Sweep levels by namespaces, on a target with namespace management, through Linux's own driver. The target
itself logs the changes to its namespaces."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opwatch.sweep.journal.file import again, journals
from opwatch.sweep.journal.state import SweepState
from tests.vm.guest.support import sysfs
from tests.vm.guest.target.drive import SERIAL
from tests.vm.guest.target.host import ConnectedTarget, connected
from tests.vm.requirements import need_tool

DEVICES = ()
# Manual runs only: fifteen short sweeps on a target in Python.
TIERS = ()
TIMEOUT_S = 3000
WHOLE, LEVEL, SMALL = 32 << 20, 16 << 20, 8 << 20
_SHORT = ("--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0", "--method", "namespace")
_ONE = ("--op", "8M", *_SHORT)
_STOPPED, _NOT_PROVEN, _UNSUPPORTED, _REFUSED = 7, 6, 5, 3
_BEGUN = [("create", WHOLE), ("attach", WHOLE)]


def taken(size: int) -> list[tuple[str, int]]:
    return [("detach", WHOLE), ("delete", WHOLE), ("create", size), ("attach", size)]


def restored(size: int) -> list[tuple[str, int]]:
    return [("delete", size), ("create", WHOLE), ("attach", WHOLE)]


def words(verb: str, folder: Path, *more: str) -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", SERIAL, "--journals", str(folder), "-q")
    return [sys.executable, "-m", "tests.vm.guest.target.local", "sweep", verb, *consent, *more]


def call(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)


def state_of(folder: Path) -> SweepState:
    [name] = journals(folder)
    journal, state = again(folder, name)
    journal.close()
    return state


def size_of(target: ConnectedTarget) -> int:
    """Return the bytes of the target's disk, 0 if there is none."""
    try:
        return sum(sysfs.number(disk, "size") * 512 for disk in target.disks())
    except OSError:  # the disk is disappearing
        return 0


def require_whole(target: ConnectedTarget, folder: Path) -> None:
    """Check for the drive's original state and a journal with nothing to undo."""
    sysfs.wait_for("the namespace", lambda: size_of(target) == WHOLE)
    assert target.log()[-2:] == [("create", WHOLE), ("attach", WHOLE)]
    assert state_of(folder).undo == []


def resumed(target: ConnectedTarget, folder: Path) -> dict[str, Any]:
    """Resume the sweep, check for the drive's original state and return the printed document."""
    done = call(words("resume", folder, journals(folder)[0], "--json"))
    assert done.returncode == _NOT_PROVEN, done.stderr
    require_whole(target, folder)
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["is_ended"] is True
    return document


def test_each_level_has_a_namespace_of_its_size(tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        [disk] = target.disks()
        recording = tmp_path / "it.opw"
        levels = ("--op", "32M,16M,8M", "-o", str(recording))
        done = call(words("run", tmp_path, "--dev", disk, "--json", *levels, *_SHORT))
        assert done.returncode == _NOT_PROVEN, done.stderr
        # The level for the whole drive keeps the original namespace.
        assert target.log() == _BEGUN + taken(LEVEL) + restored(LEVEL) + taken(SMALL) + restored(SMALL)
        require_whole(target, tmp_path)
        document = json.loads(done.stdout)
        assert [level["used_bytes"] for level in document["levels"]] == [WHOLE, LEVEL, SMALL]
        for level in document["levels"]:
            assert len(level["rounds"]) == 5
            host = level["figures"]["host"]
            assert host["trace"] == host["fio"]
            # The target writes exactly the received bytes.
            for one in level["rounds"]:
                assert one["nand_bytes"] == pytest.approx(one["host_bytes"], rel=0.02)
        assert recording.stat().st_size


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_brings_the_namespace_back(number: signal.Signals, tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        argv = words("run", tmp_path, "--dev", *target.disks(), *_ONE)
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            sysfs.wait_for("the level", lambda: size_of(target) == SMALL)
            time.sleep(3)
            process.send_signal(number)
            _, said = process.communicate(timeout=120)
        assert process.returncode == _STOPPED, said
        require_whole(target, tmp_path)
        assert target.log() == _BEGUN + taken(SMALL) + restored(SMALL)


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("what", ["detach", "delete", "create", "attach"])
def test_killed_between_any_two_commands_it_is_brought_back(what: str, is_back: bool, tmp_path: Path) -> None:
    if is_back and what == "detach":
        pytest.skip("the way back deletes, and detaches nothing")
    with connected(tmp_path / "target") as target:
        argv = words("run", tmp_path, "--dev", *target.disks(), *_ONE)
        # The first Create has an impossible size.
        if not is_back and what != "create":
            target.order(hold=[what])
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            if is_back:
                sysfs.wait_for("the level", lambda: size_of(target) == SMALL)
                target.order(hold=[what])
                process.send_signal(signal.SIGTERM)
            elif what == "create":
                sysfs.wait_for("the deletion", lambda: ("detach", WHOLE) in target.log())
                target.order(hold=[what])
            target.wait_for_held(what)
            process.send_signal(signal.SIGKILL)
            # The process dies after the command, which the target executes first.
            target.order()
            process.wait(timeout=120)
        assert process.returncode == -signal.SIGKILL
        assert len(state_of(tmp_path).undo) == 1
        document = resumed(target, tmp_path)
        assert [len(level["rounds"]) for level in document["levels"]] == [5]
        done = call([sys.executable, "-m", "opwatch", "sweep", "list", "--journals", str(tmp_path)])
        assert "not done" not in done.stdout


def test_what_a_kill_leaves_is_listed_and_is_nobodys_without_consent(tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        argv = words("run", tmp_path, "--dev", *target.disks(), *_ONE)
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            sysfs.wait_for("the level", lambda: size_of(target) == SMALL)
            process.send_signal(signal.SIGKILL)
        [name] = journals(tmp_path)
        done = call([sys.executable, "-m", "opwatch", "sweep", "list", "--journals", str(tmp_path)])
        assert "left on the drive until it is resumed: namespace 1: 65536 blocks" in " ".join(
            done.stdout.split()
        )
        argv = words("resume", tmp_path, name)
        argv[argv.index(SERIAL)] = "OTHER"
        done = call(argv)
        assert (done.returncode, "is another drive's" in done.stderr) == (_REFUSED, True), done.stderr
        # Meanwhile another user replaces the namespace.
        nvme, node = need_tool("nvme"), f"/dev/{target.controller()}"
        subprocess.run([nvme, "delete-ns", node, "--namespace-id=1"], check=True)
        subprocess.run([nvme, "create-ns", node, "--nsze=4096", "--ncap=4096", "--flbas=0"], check=True)
        done = call(words("resume", tmp_path, name))
        assert (done.returncode, "they are somebody's" in done.stderr) == (_REFUSED, True), done.stderr
        subprocess.run([nvme, "delete-ns", node, "--namespace-id=1"], check=True)
        resumed(target, tmp_path)


def test_a_create_that_fails_leaves_the_drive_as_it_was(tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        # The first Create has an impossible size and is answered normally.
        target.order(fail={"create": [0, 0x006]})
        done = call(words("run", tmp_path, "--dev", *target.disks(), *_ONE))
        assert done.returncode == 1, done.stderr
        assert "Create Namespace: the drive refused it with status 006h" in done.stderr
        assert target.log() == _BEGUN + taken(SMALL)[:2] + restored(SMALL)[1:]
        require_whole(target, tmp_path)
        target.order(fail={"attach": [0x006]})
        done = call(words("resume", tmp_path, journals(tmp_path)[0]))
        assert "Attach Namespace 1: the drive refused it with status 006h" in done.stderr
        require_whole(target, tmp_path)
        target.order(fail={"detach": [0x006]})
        done = call(words("resume", tmp_path, journals(tmp_path)[0]))
        assert "Detach Namespace 1: the drive refused it with status 006h" in done.stderr
        require_whole(target, tmp_path)


def test_where_it_cannot_be_brought_back_the_error_says_what_to_run(tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        target.order(fail={"create": [0, 0x006, 0x006]})
        done = call(words("run", tmp_path, "--dev", *target.disks(), *_ONE))
        assert done.returncode == 1, done.stderr
        assert (size_of(target), target.log()[-1]) == (0, ("delete", WHOLE))
        assert len(state_of(tmp_path).undo) == 1
        name = journals(tmp_path)[0]
        assert f"opwatch sweep resume {name} --journals {tmp_path} restores it" in done.stderr
        created = re.search(r"nvme create-ns /dev/nvme\d+ --nsze=65536 --ncap=65536 --flbas=0", done.stderr)
        attached = re.search(r"nvme attach-ns /dev/nvme\d+ --namespace-id=N --controllers=1", done.stderr)
        assert created and attached, done.stderr
        need_tool("nvme")
        subprocess.run(created[0].split(), check=True)
        subprocess.run(attached[0].replace("=N", "=1").split(), check=True)
        assert size_of(target) == WHOLE
        resumed(target, tmp_path)


@pytest.mark.parametrize(
    ("controllers", "sharing", "why"),
    [(1, 1, "several controllers (NMIC)"), (2, 0, "has 2 controllers in its subsystem")],
)
def test_what_others_may_have_is_refused(controllers: int, sharing: int, why: str, tmp_path: Path) -> None:
    with connected(tmp_path / "target", controllers=controllers, sharing=sharing) as target:
        [disk] = target.disks()
        planned = call([*words("run", tmp_path)[:3], "sweep", "plan", "--dev", disk, "--json", *_PLAN])
        assert planned.returncode == 0, planned.stderr
        assert why in json.dumps(json.loads(planned.stdout)["refusals"])
        done = call(words("run", tmp_path, "--dev", disk, *_ONE))
        assert done.returncode in (_REFUSED, _UNSUPPORTED)
        assert why in done.stderr
        assert (target.log(), journals(tmp_path)) == (_BEGUN, [])


_PLAN = ("--op", "8M", "--method", "namespace")


def test_a_plan_changes_nothing_and_says_the_steps(tmp_path: Path) -> None:
    with connected(tmp_path / "target") as target:
        [disk] = target.disks()
        plan = ["sweep", "plan", "--dev", disk, *_PLAN, "--json"]
        planned = call([sys.executable, "-m", "tests.vm.guest.target.local", *plan])
        document = json.loads(planned.stdout)
        assert document["refusals"] == [], planned.stdout
        assert "detach and delete the namespace" in planned.stdout
        # The unmodified guard refuses a drive on a network.
        guarded = call([sys.executable, "-m", "opwatch", *plan])
        assert "it is on a network (nvme-tcp)" in guarded.stdout
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        unseen = call([*nobody, sys.executable, "-m", "opwatch", *plan])
        assert unseen.returncode == 0, unseen.stderr
        assert "namespace management cannot be asked" in unseen.stdout
        # A second namespace, owned by anybody.
        nvme, node = need_tool("nvme"), f"/dev/{target.controller()}"
        subprocess.run([nvme, "create-ns", node, "--nsze=4096", "--ncap=4096", "--flbas=0"], check=True)
        planned = call([sys.executable, "-m", "tests.vm.guest.target.local", *plan])
        assert "has other namespaces than this one (1): there are 1, 2" in planned.stdout
        assert target.log() == [*_BEGUN, ("create", 4096 * 512)]
