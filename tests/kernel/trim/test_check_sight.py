"""`trim check` reports blind spots: behind hidepid, without privileges, and in other namespaces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.host.test_mountspaces import mount_elsewhere
from tests.kernel.support.filesystems import make_filesystem, mount_device
from tests.kernel.support.trims import MIB
from tests.requirements import require_nobody, skip_or_fail

TOP = Path(__file__).parents[3]
# Mount a private /proc in a private mount namespace, then run the command with less than root's privileges.
_HIDING = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv "$@"'
_WITHOUT = {
    "nobody": ("--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"),
    "root that may not trace": ("--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"),
}


def _run_behind_hidepid(who: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = ["unshare", "--mount", "sh", "-c", _HIDING, "sh", *_WITHOUT[who], sys.executable, "-P", *words]
    environment = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "PYTHONPATH": str(TOP)}
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, cwd="/", env=environment
    )


@pytest.mark.parametrize("words", [["--all"], ["/"]], ids=["all", "one"])
@pytest.mark.parametrize("who", list(_WITHOUT))
def test_processes_hidden_by_hidepid_are_reported(who: str, words: list[str]) -> None:
    if who == "nobody":
        require_nobody()
    if (probe := _run_behind_hidepid(who, "-c", "")).returncode:
        skip_or_fail("kernel", f"{who} cannot start {sys.executable}: {probe.stderr!r}")
    done = _run_behind_hidepid(who, "-m", "opwatch", "trim", "check", *words)
    text = " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr
    assert " /proc " in text and "(hidepid)" in text, done.stderr
    assert "root of the machine itself" in text
    document = json.loads(_run_behind_hidepid(who, "-m", "opwatch", "trim", "check", *words, "--json").stdout)
    assert any("(hidepid)" in unseen for unseen in document["unseen"])


def test_unprivileged_user_is_warned_about_unreadable_open_files() -> None:
    require_nobody()
    argv = ["setpriv", *_WITHOUT["nobody"], sys.executable, "-P", "-m", "opwatch", "trim", "check", "/"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TOP)}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", env=environment)
    assert "unreadable" in " ".join(done.stdout.split()), done.stderr


def _run_check(*words: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "opwatch", "trim", "check", *words, "--json"]
    document: dict[str, Any] = json.loads(
        subprocess.run(argv, capture_output=True, text=True, check=False).stdout
    )
    return document


def test_filesystem_in_another_namespace_is_reported(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    with ScratchDisk(64 * MIB) as disk, ScratchDisk(64 * MIB) as other:
        make_filesystem("ext4", disk.node)
        make_filesystem("ext4", other.node)
        with mount_device(disk.node, here), mount_elsewhere(other.node, tmp_path) as process:
            wanted = {"device": other.node, "filesystem": "ext4", "mount": str(tmp_path), "pid": process}
            assert wanted in _run_check("--all")["elsewhere"]
            assert _run_check("--dev", other.node)["elsewhere"] == [wanted]
            assert _run_check("--dev", disk.node)["elsewhere"] == []
        assert wanted not in _run_check("--all")["elsewhere"]
