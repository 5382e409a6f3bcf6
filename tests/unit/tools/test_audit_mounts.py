"""Mounts that `opwatch trim audit` trims with --all and --dev: each filesystem once, if possible."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from opwatch.errors import RefusedError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.usage import Mount, Usage
from opwatch.tools.commands.trim import audit


def make_mount(dev: str, point: Path, *options: str) -> Mount:
    return Mount(dev, str(point), "ext4", f"/dev/{dev.replace(':', '-')}", options)


def choose_mounts(
    monkeypatch: pytest.MonkeyPatch, mounts: list[Mount], **arguments: object
) -> list[tuple[str, str]]:
    monkeypatch.setattr(audit, "read_usage", lambda: Usage(mounts, [], {}))
    monkeypatch.setattr(
        Devices, "resolve", lambda self, text: BlockDevice("sda", (8, 0), Path("/sys/block/sda"))
    )
    options = {"mounts": [], "dev": None, "all": False} | arguments
    return [(one.dev, one.point) for one in audit._choose_mounts(argparse.Namespace(**options))]


def test_covered_filesystem_is_not_confused_with_its_cover(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mounts = [make_mount("8:0", tmp_path), make_mount("8:16", tmp_path)]
    assert choose_mounts(monkeypatch, mounts, all=True) == [("8:16", str(tmp_path))]
    hidden = f"{tmp_path}: /dev/8-0 .*/dev/8-16"
    assert re.search(hidden, " ".join(capsys.readouterr().err.split()))
    with pytest.raises(RefusedError, match=hidden):
        choose_mounts(monkeypatch, mounts, dev="sda")


def test_a_mount_that_can_be_written_is_preferred(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    points = [tmp_path / name for name in ("first", "second")]
    for point in points:
        point.mkdir()
    mounts = [make_mount("8:0", points[0], "ro"), make_mount("8:0", points[1], "rw")]
    for how in ({"all": True}, {"dev": "sda"}):
        assert choose_mounts(monkeypatch, mounts, **how) == [("8:0", str(points[1]))]
    assert capsys.readouterr().err == ""
    with pytest.raises(RefusedError, match="read-only"):
        choose_mounts(monkeypatch, mounts[:1], dev="sda")
