"""Impossible drives are refused with the options' names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opwatch.drive.life import DriveSpec, estimate_memory, find_memory_limit, require_memory
from opwatch.errors import OpwatchError
from opwatch.ftl.drive import Drive

GIB = 1 << 30


def test_memory_is_checked_first(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  9999999 kB\nMemAvailable:  2097152 kB\n")
    sizes = {"user_bytes": 2 * GIB, "physical_bytes": 2 * GIB + GIB // 8}
    with pytest.raises(OpwatchError, match=r" 2 GiB .*\b2\.0\d GiB .*\b2 GiB .*--no-data"):
        require_memory(DriveSpec("x", sizes), meminfo)
    require_memory(DriveSpec("x", sizes, no_data=True), meminfo)
    require_memory(DriveSpec("x", {key: size // 2 for key, size in sizes.items()}), meminfo)
    require_memory(DriveSpec("x"), meminfo)
    # A 1 TiB drive without contents takes at most 2.35 GiB.
    large = {"user_bytes": 1 << 40, "physical_bytes": (1 << 40) * 107 // 100}
    assert 2 * GIB < estimate_memory(DriveSpec("x", large, no_data=True)) < 2.35 * GIB


def test_allowed_memory_is_a_bound(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemAvailable:  2097152 kB\n")
    sizes = {"user_bytes": GIB, "physical_bytes": GIB + GIB // 8}
    require_memory(DriveSpec("x", sizes, memory_bytes=GIB + GIB // 8), meminfo)
    with pytest.raises(OpwatchError, match=r"--memory .*1 GiB"):
        require_memory(DriveSpec("x", sizes, memory_bytes=GIB), meminfo)
    # The option cannot allow more than the available memory.
    assert find_memory_limit(DriveSpec("x", memory_bytes=4 * GIB), meminfo) == 2 * GIB
    meminfo.write_text("")
    assert find_memory_limit(DriveSpec("x", memory_bytes=4 * GIB), meminfo) == 4 * GIB
    assert find_memory_limit(DriveSpec("x"), meminfo) is None


@pytest.mark.parametrize("size", ["64T", "99999999999T"])
def test_huge_size_error_names_the_option(size: str) -> None:
    argv = [
        sys.executable,
        "-m",
        "opwatch",
        "drive",
        "create",
        "--name",
        "limits",
        "--size",
        size,
        "--no-data",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"--size {size} " in done.stderr
    assert "user_bytes" not in done.stderr


def test_too_little_spare_names_size_and_need() -> None:
    config = {"user_bytes": GIB, "physical_bytes": GIB + 4096}
    with pytest.raises(ValueError, match=r"1\.0 GiB .*\b0\.\d\d%$") as raised:
        Drive(config)
    need = float(str(raised.value).split()[-1].rstrip("%")) / 100
    Drive(config | {"physical_bytes": GIB + -(-int(GIB * need) // 4096) * 4096})
