"""Files with the counters of file systems, and reasons where there are none."""

from __future__ import annotations

from pathlib import Path

from opwatch.collectors.writes.filesystem_counters import read_dirty_bytes, read_filesystem_counters
from opwatch.host.device import BlockDevice

SDA = BlockDevice("sda", (8, 0), Path("/nonexistent"))


def write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_xfs_has_counters_per_device(tmp_path: Path) -> None:
    write_file(tmp_path / "fs/xfs/sda/stats/stats", "log 1 2 0 0 0\nxpc 0 4096 0\n")
    counters = read_filesystem_counters("xfs", SDA, tmp_path, tmp_path)
    assert (counters.application, counters.journal, counters.reason) == (4096, 1024, None)


def test_f2fs_names_the_switch_that_is_off(tmp_path: Path) -> None:
    switch = tmp_path / "fs/f2fs/sda/iostat_enable"
    write_file(switch, "0\n")
    counters = read_filesystem_counters("f2fs", SDA, tmp_path, tmp_path)
    assert counters.application is None
    assert counters.reason is not None
    assert f"echo 1 > {switch}" in counters.reason


def test_missing_and_malformed_files_are_reasons(tmp_path: Path) -> None:
    assert read_filesystem_counters("xfs", SDA, tmp_path, tmp_path).reason
    write_file(tmp_path / "fs/xfs/sda/stats/stats", "log x\n")
    assert read_filesystem_counters("xfs", SDA, tmp_path, tmp_path).reason


def test_a_file_system_without_counters_gives_no_reason_of_its_own(tmp_path: Path) -> None:
    counters = read_filesystem_counters("ext4", SDA, tmp_path, tmp_path)
    assert (counters.application, counters.reason) == (None, None)


def test_dirty_bytes_are_read_from_meminfo(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nDirty:              36 kB\nWriteback: 4 kB\n")
    assert read_dirty_bytes(tmp_path) == 36 * 1024
    assert read_dirty_bytes(tmp_path / "missing") is None
