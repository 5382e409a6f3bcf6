"""`opwatch trim audit -o FILE`: a replay equals the live output, to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.trims import mount_filesystem
from tests.kernel.support.watching import run_opwatch
from tests.kernel.trim.test_audit import create_on_overlay


@pytest.mark.parametrize("form", [["--json"], []])
def test_replay_of_an_audit_equals_its_output(tmp_path: Path, disk: ScratchDisk, form: list[str]) -> None:
    path = tmp_path / "a.opw"
    with mount_filesystem(disk.node, "ext4") as point:
        live = run_opwatch("trim", "audit", "-o", str(path), "--prove", *form, str(point))
        assert live.returncode in (0, 6), live.stderr
        # An existing file is never overwritten, and the refusal comes before any trim.
        again = run_opwatch("trim", "audit", "-o", str(path), str(point))
        assert (again.returncode, again.stdout) == (3, "")
        assert "exists" in again.stderr
        nowhere = run_opwatch("trim", "audit", "-o", str(tmp_path / "x" / "y.opw"), str(point))
        assert (nowhere.returncode, nowhere.stdout) == (1, "")
    shown = run_opwatch("replay", *form, str(path))
    assert (shown.returncode, shown.stdout) == (0, live.stdout), shown.stderr
    assert path.stat().st_mode & 0o777 == 0o600


def test_replay_reports_a_loss_without_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.opw"
    with create_on_overlay() as point:
        live = run_opwatch("trim", "audit", "-o", str(path), str(point))
    shown = run_opwatch("replay", str(path))
    assert live.returncode == 32, live.stderr
    assert (shown.returncode, shown.stdout) == (0, live.stdout), shown.stderr
    assert "loop-no-punch" in shown.stdout


def test_replay_of_a_watch_equals_its_output(tmp_path: Path, disk: ScratchDisk) -> None:
    path = tmp_path / "a.opw"
    argv = ("trim", "audit", "--watch", "--json", "-o", str(path), "--dev", disk.node, "--")
    live = run_opwatch(*argv, "blkdiscard", disk.node)
    shown = run_opwatch("replay", "--json", str(path))
    assert (shown.returncode, shown.stdout) == (0, live.stdout), live.stderr + shown.stderr
    assert json.loads(shown.stdout)["subject"] == Path(disk.node).name
