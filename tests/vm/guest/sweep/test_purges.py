"""Purge commands of real drivers' drives, and a sweep that formats instead of discarding."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opwatch.errors import Unsupported
from opwatch.host.device import Devices
from opwatch.journal.file import list_journals, reopen_sweep_journal
from opwatch.tools.acting.sweep.namespace import require_namespaces
from tests.vm.guest.support import sysfs
from tests.vm.requirements import need_tool

DEVICES = ("nvme-sweep", "ahci")
# Manual runs only: a sweep and several plans.
TIERS = ()
TIMEOUT_S = 1800
SIZE = 64 << 20
_LEVELS = ("--op", "32M,24M", "--settle", "0", "--fill", "1", "--rounds", "5", "--refresh", "0")
_NOT_PROVEN, _UNSUPPORTED = 6, 5


def run_opwatch(verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "opwatch", "sweep", verb, "--allow-virtual", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False)


def make_consent(serial: str, folder: Path) -> tuple[str, ...]:
    return ("--destroy", "--confirm", serial, "--journals", str(folder), "-q")


def test_each_level_starts_with_a_format(tmp_path: Path) -> None:
    need_tool("nvme")
    disk = sysfs.disk("opw-sweep")
    before = sysfs.read_stat(disk)
    words = ("--dev", disk, "--purge", "format", "--json", *make_consent("opw-sweep", tmp_path), *_LEVELS)
    done = run_opwatch("run", *words)
    assert done.returncode == _NOT_PROVEN, done.stderr
    assert [len(level["rounds"]) for level in json.loads(done.stdout)["levels"]] == [5, 5]
    # The only discard comes at the end, because each level started with a format.
    assert (sysfs.read_stat(disk) - before).discard_bytes == SIZE
    [name] = list_journals(tmp_path)
    journal, state = reopen_sweep_journal(tmp_path, name)
    journal.close()
    assert (state.request.purge, state.is_ended) == ("format", True)
    assert sysfs.read_number(disk, "size") * 512 == SIZE


@pytest.mark.parametrize(
    ("serial", "words", "why"),
    [
        ("opw-sweep", ("--purge", "sanitize"), "does not support Sanitize (SANICAP is 0)"),
        ("opw-ahci", ("--purge", "format"), "is not an NVMe drive"),
        ("opw-ahci", ("--purge", "secure-erase"), "no security feature set (IDENTIFY word 82 bit 1 is 0)"),
        ("opw-sweep", ("--method", "namespace"), "announces but does not support Namespace Management"),
        ("opw-ahci", ("--method", "max-address"), "no host protected area (IDENTIFY word 82 bit 10 is 0)"),
    ],
)
def test_unsupported_method_is_in_the_plan_and_refused(
    serial: str, words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    disk = sysfs.disk(serial)
    before = sysfs.read_stat(disk)
    planned = run_opwatch("plan", "--dev", disk, "--json", *words)
    assert planned.returncode == 0, planned.stderr
    document: dict[str, Any] = json.loads(planned.stdout)
    assert [why in refusal["what"] for refusal in document["refusals"]] == [True]
    done = run_opwatch("run", "--dev", disk, *words, *make_consent(serial, tmp_path), *_LEVELS)
    assert done.returncode == _UNSUPPORTED
    assert why in done.stderr
    assert list_journals(tmp_path) == []
    changed = sysfs.read_stat(disk) - before
    assert (changed.write_bytes, changed.discard_bytes) == (0, 0)


def test_announced_namespace_management_may_be_unimplemented() -> None:
    """Why a sweep sends a Create first: QEMU sets the OACS bit but lacks the commands. An invalid size and an
    invalid namespace make a drive that has the commands answer with another status."""
    nvme = need_tool("nvme")
    node = f"/dev/{sysfs.disk('opw-sweep')}"
    create = [nvme, "create-ns", node, "--nsze=0", "--ncap=0", "--flbas=0"]
    for argv in (create, [nvme, "delete-ns", node, "--namespace-id=200"]):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode
        assert "Invalid Command Opcode" in done.stdout + done.stderr
    # The plan reads the command effects log; the run finds out from the answer to a Create.
    device = Devices().by_name(sysfs.disk("opw-sweep"))
    assert device
    with pytest.raises(Unsupported, match=r"it answers 001h \(invalid opcode\), not 115h"):
        require_namespaces(Devices(), device)
    assert sysfs.read_number(device.name, "size") * 512 == SIZE
