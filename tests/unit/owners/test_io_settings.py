"""Limits and weights of control groups for a disk, in both versions of the hierarchy."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.collectors.owners import io_settings
from opwatch.collectors.owners.cgroups import IoHierarchy
from opwatch.collectors.owners.io_settings import read_io_settings
from opwatch.samples.sample import GroupSetting

DISK, OTHER = (8, 0), (8, 16)


def write_files(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def test_limits_are_found_in_nested_groups_of_version_2(tmp_path: Path) -> None:
    write_files(tmp_path / "a" / "b", {"io.max": "8:0 rbps=max wbps=1048576 riops=max wiops=10\n"})
    write_files(tmp_path / "c", {"io.max": "8:16 rbps=5 wbps=max riops=max wiops=max\n"})
    write_files(tmp_path / "d", {"io.latency": "8:0 target=5000\n", "io.weight": "default 10\n"})
    settings = read_io_settings(IoHierarchy(2, tmp_path))
    assert set(settings.find_groups(DISK) or ()) == {
        GroupSetting("/a/b", "io.max", "wbps=1048576 wiops=10"),
        GroupSetting("/d", "io.latency", "target=5000"),
    }
    assert settings.find_groups(OTHER) == (GroupSetting("/c", "io.max", "rbps=5"),)
    assert settings.find_groups((259, 0)) == ()
    assert settings.find_cost(DISK) is None


def test_weights_are_found_on_disks_with_iocost(tmp_path: Path) -> None:
    qos = "8:0 enable=1 ctrl=auto rpct=0.00\n8:16 enable=0 ctrl=auto\n"
    write_files(tmp_path, {"io.cost.qos": qos})
    write_files(tmp_path / "low", {"io.weight": "default 10\n"})
    write_files(tmp_path / "usual", {"io.weight": "default 100\n8:16 7\n"})
    write_files(tmp_path / "own", {"io.weight": "default 100\n8:0 500\n"})
    settings = read_io_settings(IoHierarchy(2, tmp_path))
    assert settings.find_cost(DISK) == "enable=1 ctrl=auto rpct=0.00"
    assert settings.find_cost(OTHER) is None
    assert set(settings.find_groups(DISK) or ()) == {
        GroupSetting("/low", "io.weight", "10"),
        GroupSetting("/own", "io.weight", "500"),
    }
    assert settings.find_groups(OTHER) == ()


def test_limits_are_found_in_version_1(tmp_path: Path) -> None:
    write_files(tmp_path, {"blkio.throttle.write_iops_device": ""})
    write_files(tmp_path / "db", {"blkio.throttle.write_iops_device": "8:0 50\n"})
    settings = read_io_settings(IoHierarchy(1, tmp_path))
    assert settings.find_groups(DISK) == (GroupSetting("/db", "blkio.throttle.write_iops_device", "50"),)


def test_settings_are_unknown_without_a_hierarchy() -> None:
    assert read_io_settings(IoHierarchy(1)).find_groups(DISK) is None


def test_absence_is_unknown_if_some_groups_were_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(io_settings, "_MAX_GROUPS", 3)
    for number in range(5):
        write_files(tmp_path / f"g{number}", {"io.max": ""})
    assert read_io_settings(IoHierarchy(2, tmp_path)).find_groups(DISK) is None
    write_files(tmp_path, {"io.max": "8:0 wbps=1\n"})
    assert read_io_settings(IoHierarchy(2, tmp_path)).find_groups(DISK) == (
        GroupSetting("/", "io.max", "wbps=1"),
    )


def test_odd_files_have_no_settings(tmp_path: Path) -> None:
    write_files(tmp_path / "a", {"io.max": "\n8:0\n8:0 rbps=max\nx y\n\x00\xff 8:0\n"})
    assert read_io_settings(IoHierarchy(2, tmp_path)).find_groups(DISK) == ()
