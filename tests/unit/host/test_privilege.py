"""The command suggested to users without a privilege."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.host import privilege
from opwatch.host.bpftrace_trial import MOUNT, judge_trial
from opwatch.host.diagnosis import State, make_ok
from opwatch.host.privilege import build_own_command, make_permission_error
from opwatch.tools import cli


def test_the_command_is_a_full_path_that_runs_this_opwatch() -> None:
    words = shlex.split(build_own_command())
    assert Path(words[0]).is_absolute()
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stdout.split()[0]) == (0, "opwatch")


@pytest.mark.parametrize("installed", [True, False])
def test_a_module_is_not_imported_from_the_working_folder(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `sudo python -m opwatch`, the owner of the working folder could run code as root."""
    (tmp_path / "opwatch").mkdir()
    (tmp_path / "opwatch" / "__main__.py").write_text("print('caught')")
    monkeypatch.setattr(sys, "argv", ["/x/__main__.py"])
    monkeypatch.setattr(privilege, "_is_installed", lambda: installed)
    with monkeypatch.context() as other:
        # A Python installation without the opwatch script.
        other.setattr(sys, "executable", "/nonexistent/python")
        command = build_own_command()
    assert " -P -m opwatch" in command
    real = command.replace("/nonexistent/python", shlex.quote(sys.executable))
    done = subprocess.run(
        [*shlex.split(real), "--version"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "caught" not in done.stdout
    assert done.returncode == 0, done.stderr


def test_script_is_found_through_path_like_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / name for name in ("none", "folder", "unmarked", "first", "second")]
    for folder in folders[1:]:
        folder.mkdir()
    (folders[1] / "opwatch").mkdir()
    for folder, mode in zip(folders[2:], (0o644, 0o755, 0o755), strict=True):
        (folder / "opwatch").touch(mode)
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    monkeypatch.setattr(sys, "argv", ["opwatch"])
    assert build_own_command() == shutil.which("opwatch") == str(tmp_path / "first" / "opwatch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["second/opwatch"])
    assert build_own_command() == str(tmp_path / "second" / "opwatch")


def test_missing_privilege_is_reported_with_the_command() -> None:
    words = str(make_permission_error("opwatch trim audit", "root: it trims", "trim audit ..."))
    assert words == f"opwatch trim audit needs root: it trims. Try: sudo {build_own_command()} trim audit ..."


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ("overhead", "opwatch overhead without --dev needs root"),
        ("drive create --size 64M", "opwatch drive create needs root"),
        ("drive destroy x", "opwatch drive destroy needs root"),
        ("drive destroy --all", "opwatch drive destroy needs root"),
        ("trim record --dev sda", "opwatch trim record needs root"),
        ("trim audit /", "opwatch trim audit needs root"),
    ],
)
def test_each_command_names_the_missing_privilege(
    arguments: str, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 65534)
    assert cli.main(arguments.split()) == 4
    message = capsys.readouterr().err
    assert what in message
    assert f"Try: sudo {build_own_command()} {' '.join(arguments.split()[:1])}" in message


def test_bpftrace_is_ok_only_if_attaching_works() -> None:
    check = make_ok("bpftrace", "0.17.0")
    assert judge_trial(check, None, mount_helps=False).state is State.OK
    unmounted = judge_trial(check, "kfunc not available", mount_helps=True)
    assert (unmounted.state, unmounted.fix) == (State.NOTE, MOUNT)
    refusal = "kfunc not available"
    lacking = judge_trial(check, refusal, mount_helps=False)
    assert (lacking.state, lacking.fix) == (State.NOTE, None)
    assert refusal in lacking.finding and "--backend bcc" in lacking.finding
