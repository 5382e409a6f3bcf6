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

from opwatch.journal.file import list_journals, reopen_sweep_journal
from opwatch.journal.state import SweepState
from tests.vm.guest.support import sysfs
from tests.vm.guest.target.drive import SERIAL
from tests.vm.guest.target.host import ConnectedTarget, connect_target
from tests.vm.requirements import need_tool

DEVICES = ()
# Manual runs only: fifteen short sweeps on a target in Python.
TIERS = ()
TIMEOUT_S = 3000
WHOLE, LEVEL, SMALL = 32 << 20, 16 << 20, 8 << 20
_SHORT_OPTIONS = ("--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0", "--method", "namespace")
_ONE_LEVEL = ("--op", "8M", *_SHORT_OPTIONS)
_STOPPED, _NOT_PROVEN, _UNSUPPORTED, _REFUSED = 7, 6, 5, 3
_INITIAL_LOG = [("create", WHOLE), ("attach", WHOLE)]


def list_take_entries(size: int) -> list[tuple[str, int]]:
    return [("detach", WHOLE), ("delete", WHOLE), ("create", size), ("attach", size)]


def list_restore_entries(size: int) -> list[tuple[str, int]]:
    return [("delete", size), ("create", WHOLE), ("attach", WHOLE)]


def make_arguments(verb: str, folder: Path, *more: str) -> list[str]:
    need_tool("fio")
    consent = ("--destroy", "--confirm", SERIAL, "--journals", str(folder), "-q")
    return [sys.executable, "-m", "tests.vm.guest.target.local", "sweep", verb, *consent, *more]


def run_opwatch(argv: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)


def read_sweep_state(folder: Path) -> SweepState:
    [name] = list_journals(folder)
    journal, state = reopen_sweep_journal(folder, name)
    journal.close()
    return state


def read_size(target: ConnectedTarget) -> int:
    """Return the bytes of the target's disk, 0 if there is none."""
    try:
        return sum(sysfs.read_number(disk, "size") * 512 for disk in target.list_disks())
    except OSError:  # the disk is disappearing
        return 0


def require_restored(target: ConnectedTarget, folder: Path) -> None:
    """Check for the drive's original state and a journal with nothing to undo."""
    sysfs.wait_for("the namespace", lambda: read_size(target) == WHOLE)
    assert target.read_log()[-2:] == [("create", WHOLE), ("attach", WHOLE)]
    assert read_sweep_state(folder).undo == []


def resume_sweep(target: ConnectedTarget, folder: Path) -> dict[str, Any]:
    """Resume the sweep, check for the drive's original state and return the printed document."""
    done = run_opwatch(make_arguments("resume", folder, list_journals(folder)[0], "--json"))
    assert done.returncode == _NOT_PROVEN, done.stderr
    require_restored(target, folder)
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["is_ended"] is True
    return document


def test_each_level_has_a_namespace_of_its_size(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        [disk] = target.list_disks()
        recording = tmp_path / "it.opw"
        levels = ("--op", "32M,16M,8M", "-o", str(recording))
        done = run_opwatch(make_arguments("run", tmp_path, "--dev", disk, "--json", *levels, *_SHORT_OPTIONS))
        assert done.returncode == _NOT_PROVEN, done.stderr
        # The level for the whole drive keeps the original namespace.
        assert target.read_log() == _INITIAL_LOG + list_take_entries(LEVEL) + list_restore_entries(
            LEVEL
        ) + list_take_entries(SMALL) + list_restore_entries(SMALL)
        require_restored(target, tmp_path)
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
def test_signal_restores_the_namespace(number: signal.Signals, tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        argv = make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_ONE_LEVEL)
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            sysfs.wait_for("the level", lambda: read_size(target) == SMALL)
            time.sleep(3)
            process.send_signal(number)
            _, said = process.communicate(timeout=120)
        assert process.returncode == _STOPPED, said
        require_restored(target, tmp_path)
        assert target.read_log() == _INITIAL_LOG + list_take_entries(SMALL) + list_restore_entries(SMALL)


@pytest.mark.parametrize("is_back", [False, True])
@pytest.mark.parametrize("what", ["detach", "delete", "create", "attach"])
def test_resume_restores_the_namespace_after_a_kill_between_any_two_commands(
    what: str, is_back: bool, tmp_path: Path
) -> None:
    if is_back and what == "detach":
        pytest.skip("the way back deletes, and detaches nothing")
    with connect_target(tmp_path / "target") as target:
        argv = make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_ONE_LEVEL)
        # The first Create has an impossible size.
        if not is_back and what != "create":
            target.write_orders(hold=[what])
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            if is_back:
                sysfs.wait_for("the level", lambda: read_size(target) == SMALL)
                target.write_orders(hold=[what])
                process.send_signal(signal.SIGTERM)
            elif what == "create":
                sysfs.wait_for("the deletion", lambda: ("detach", WHOLE) in target.read_log())
                target.write_orders(hold=[what])
            target.wait_until_on_hold(what)
            process.send_signal(signal.SIGKILL)
            # The process dies after the command, which the target executes first.
            target.write_orders()
            process.wait(timeout=120)
        assert process.returncode == -signal.SIGKILL
        assert len(read_sweep_state(tmp_path).undo) == 1
        document = resume_sweep(target, tmp_path)
        assert [len(level["rounds"]) for level in document["levels"]] == [5]
        done = run_opwatch([sys.executable, "-m", "opwatch", "sweep", "list", "--journals", str(tmp_path)])
        assert "not done" not in done.stdout


def test_leftovers_of_a_kill_are_listed_and_need_consent_to_resume(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        argv = make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_ONE_LEVEL)
        with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as process:
            sysfs.wait_for("the level", lambda: read_size(target) == SMALL)
            process.send_signal(signal.SIGKILL)
        [name] = list_journals(tmp_path)
        done = run_opwatch([sys.executable, "-m", "opwatch", "sweep", "list", "--journals", str(tmp_path)])
        assert "left on the drive until it is resumed: namespace 1: 65536 blocks" in " ".join(
            done.stdout.split()
        )
        argv = make_arguments("resume", tmp_path, name)
        argv[argv.index(SERIAL)] = "OTHER"
        done = run_opwatch(argv)
        assert (done.returncode, "is not its serial number" in done.stderr) == (_REFUSED, True), done.stderr
        # Meanwhile another user replaces the namespace.
        nvme, node = need_tool("nvme"), f"/dev/{target.find_controller()}"
        subprocess.run([nvme, "delete-ns", node, "--namespace-id=1"], check=True)
        subprocess.run([nvme, "create-ns", node, "--nsze=4096", "--ncap=4096", "--flbas=0"], check=True)
        done = run_opwatch(make_arguments("resume", tmp_path, name))
        assert (done.returncode, "they are left alone" in done.stderr) == (_REFUSED, True), done.stderr
        subprocess.run([nvme, "delete-ns", node, "--namespace-id=1"], check=True)
        resume_sweep(target, tmp_path)


def test_failed_command_leaves_the_drive_unchanged(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        # The first Create has an impossible size and is answered normally.
        target.write_orders(fail={"create": [0, 0x006]})
        done = run_opwatch(make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_ONE_LEVEL))
        assert done.returncode == 1, done.stderr
        assert "Create Namespace: the drive refused it with status 006h" in done.stderr
        assert (
            target.read_log() == _INITIAL_LOG + list_take_entries(SMALL)[:2] + list_restore_entries(SMALL)[1:]
        )
        require_restored(target, tmp_path)
        target.write_orders(fail={"attach": [0x006]})
        done = run_opwatch(make_arguments("resume", tmp_path, list_journals(tmp_path)[0]))
        assert "Attach Namespace 1: the drive refused it with status 006h" in done.stderr
        require_restored(target, tmp_path)
        target.write_orders(fail={"detach": [0x006]})
        done = run_opwatch(make_arguments("resume", tmp_path, list_journals(tmp_path)[0]))
        assert "Detach Namespace 1: the drive refused it with status 006h" in done.stderr
        require_restored(target, tmp_path)


def test_error_names_the_commands_when_the_namespace_cannot_be_restored(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        target.write_orders(fail={"create": [0, 0x006, 0x006]})
        done = run_opwatch(make_arguments("run", tmp_path, "--dev", *target.list_disks(), *_ONE_LEVEL))
        assert done.returncode == 1, done.stderr
        assert (read_size(target), target.read_log()[-1]) == (0, ("delete", WHOLE))
        assert len(read_sweep_state(tmp_path).undo) == 1
        name = list_journals(tmp_path)[0]
        assert f"opwatch sweep resume {name} --journals {tmp_path} restores it" in done.stderr
        created = re.search(r"nvme create-ns /dev/nvme\d+ --nsze=65536 --ncap=65536 --flbas=0", done.stderr)
        attached = re.search(r"nvme attach-ns /dev/nvme\d+ --namespace-id=N --controllers=1", done.stderr)
        assert created and attached, done.stderr
        need_tool("nvme")
        subprocess.run(created[0].split(), check=True)
        subprocess.run(attached[0].replace("=N", "=1").split(), check=True)
        assert read_size(target) == WHOLE
        resume_sweep(target, tmp_path)


@pytest.mark.parametrize(
    ("controllers", "sharing", "why"),
    [(1, 1, "several controllers (NMIC)"), (2, 0, "has 2 controllers in its subsystem")],
)
def test_namespace_that_other_hosts_may_use_is_refused(
    controllers: int, sharing: int, why: str, tmp_path: Path
) -> None:
    with connect_target(tmp_path / "target", controllers=controllers, sharing=sharing) as target:
        [disk] = target.list_disks()
        planned = run_opwatch(
            [*make_arguments("run", tmp_path)[:3], "sweep", "plan", "--dev", disk, "--json", *_PLAN_OPTIONS]
        )
        assert planned.returncode == 0, planned.stderr
        assert why in json.dumps(json.loads(planned.stdout)["refusals"])
        done = run_opwatch(make_arguments("run", tmp_path, "--dev", disk, *_ONE_LEVEL))
        assert done.returncode in (_REFUSED, _UNSUPPORTED)
        assert why in done.stderr
        assert (target.read_log(), list_journals(tmp_path)) == (_INITIAL_LOG, [])


_PLAN_OPTIONS = ("--op", "8M", "--method", "namespace")


def test_plan_lists_the_steps_and_leaves_the_drive_unchanged(tmp_path: Path) -> None:
    with connect_target(tmp_path / "target") as target:
        [disk] = target.list_disks()
        plan = ["sweep", "plan", "--dev", disk, *_PLAN_OPTIONS, "--json"]
        planned = run_opwatch([sys.executable, "-m", "tests.vm.guest.target.local", *plan])
        document = json.loads(planned.stdout)
        assert document["refusals"] == [], planned.stdout
        assert "detach and delete the namespace" in planned.stdout
        # The unmodified guard refuses a drive on a network.
        guarded = run_opwatch([sys.executable, "-m", "opwatch", *plan])
        assert "it is on a network (nvme-tcp)" in guarded.stdout
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        unseen = run_opwatch([*nobody, sys.executable, "-m", "opwatch", *plan])
        assert unseen.returncode == 0, unseen.stderr
        assert "supports namespace management" in unseen.stdout
        # A second namespace, owned by anybody.
        nvme, node = need_tool("nvme"), f"/dev/{target.find_controller()}"
        subprocess.run([nvme, "create-ns", node, "--nsze=4096", "--ncap=4096", "--flbas=0"], check=True)
        planned = run_opwatch([sys.executable, "-m", "tests.vm.guest.target.local", *plan])
        assert "has other namespaces than this one (1): 1, 2" in planned.stdout
        assert target.read_log() == [*_INITIAL_LOG, ("create", 4096 * 512)]
