"""The control group hierarchy that accounts I/O; each hierarchy numbers its groups separately."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.collectors.block.owners import make_group_notes
from opwatch.collectors.owners.cgroups import IoHierarchy, find_io_hierarchy
from opwatch.owners.cells import OwnerGrouping

HEAD = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"


def make_proc(folder: Path, controllers: str, mounts: str) -> Path:
    (folder / "self").mkdir()
    (folder / "cgroups").write_text(HEAD + controllers)
    (folder / "self" / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/root rw\n" + mounts)
    return folder


def format_mount(place: Path, options: str) -> str:
    return f"38 31 0:35 / {place} rw,relatime shared:9 - cgroup cgroup {options}\n"


def test_hybrid_hierarchy_uses_version_1_groups(tmp_path: Path) -> None:
    groups = tmp_path / "block io"
    (groups / "docker" / "web").mkdir(parents=True)
    own = format_mount(groups, "rw,blkio").replace("k i", r"k\040i")
    mounts = format_mount(tmp_path, "rw,memory") + own + UNIFIED
    proc = make_proc(tmp_path, "memory\t4\t42\t1\nblkio\t7\t3\t1\n", mounts)
    hierarchy = find_io_hierarchy(proc)
    assert hierarchy == IoHierarchy(1, groups)
    assert hierarchy.read_names()[(groups / "docker" / "web").stat().st_ino] == "/docker/web"
    [note] = make_group_notes(OwnerGrouping.CGROUP, tmp_path, proc)
    assert str(groups) in note
    assert make_group_notes(OwnerGrouping.PROCESS, tmp_path, proc) == []


def test_a_hierarchy_that_is_mounted_nowhere_gives_no_names(tmp_path: Path) -> None:
    proc = make_proc(tmp_path, "blkio\t7\t3\t1\n", UNIFIED)
    hierarchy = find_io_hierarchy(proc)
    assert (hierarchy, hierarchy.read_names()) == (IoHierarchy(1), {})
    [note] = make_group_notes(OwnerGrouping.CGROUP, tmp_path, proc)
    assert "version 1 (blkio)" in note


@pytest.mark.parametrize("controllers", ["blkio\t0\t3\t1\n", "memory\t4\t1\t1\n", "", "blkio\n"])
def test_io_controller_is_of_version_2_unless_version_1_has_io(tmp_path: Path, controllers: str) -> None:
    assert find_io_hierarchy(make_proc(tmp_path, controllers, UNIFIED)) == IoHierarchy(2)


def test_missing_proc_selects_version_2(tmp_path: Path) -> None:
    assert find_io_hierarchy(tmp_path) == IoHierarchy(2)
