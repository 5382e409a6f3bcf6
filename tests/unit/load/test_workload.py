"""Workload files: parsed, or refused before fio runs."""

from __future__ import annotations

import errno
import os
from fractions import Fraction
from pathlib import Path

import pytest

from opwatch.errors import BadInput, UsageError
from opwatch.load.fio_arguments import LoadWindow, build_fill_arguments, build_round_arguments, derive_seed
from opwatch.load.options import REQUEST_OPTIONS, SWEEP_OPTIONS
from opwatch.load.workload import (
    find_workload,
    list_workloads,
    parse_job_file,
    parse_workload,
    require_data_only_writes,
    require_reach,
)

WINDOW = LoadWindow("/proc/7/fd/3", 1 << 30)
USERS = b"""
; somebody's own
[global]
ioengine=io_uring
filename=/dev/nvme0n1  # not for us
size=100%
runtime=60
time_based
direct=1

[writer]
rw=randwrite
bs=16k
iodepth=64
[mixed]
readwrite=randrw
rwmixread=70
numjobs=2
"""


@pytest.mark.parametrize("name", list_workloads())
def test_packaged_workload_is_valid(name: str) -> None:
    pattern = find_workload(name)
    assert pattern.left_out == ()
    assert len(pattern.description) > 20
    for job in pattern.jobs:
        assert 0 < job.write_share <= 1
        assert job.options["direct"] == job.options["refill_buffers"] == "1"


@pytest.mark.parametrize(
    ("lines", "ratio", "is_taken"),
    [
        ("rw=write", 1.0, True),
        ("rw=write", 0.1, False),
        ("rw=rw", 0.1, False),
        ("rw=readwrite", 1.0, False),
        ("rw=write\nnumjobs=2", 1.0, False),
        ("rw=randwrite", 0.1, True),
        ("rw=randrw\nnumjobs=4", 0.1, True),
    ],
)
def test_sequential_writes_must_cover_the_whole_range(lines: str, ratio: float, is_taken: bool) -> None:
    """fio starts each round at the first byte, so with a partial range the rest is never written."""
    pattern = parse_job_file(f"[a]\n{lines}\n".encode(), "mine.fio")
    if is_taken:
        require_reach(pattern, ratio)
    else:
        with pytest.raises(UsageError, match=r"^mine: "):
            require_reach(pattern, ratio)


@pytest.mark.parametrize(
    ("line", "is_taken"),
    [
        ("fsync=8", False),
        ("fsync=0", True),
        ("fdatasync=1", True),
        ("sync=1", False),
        ("sync=sync", False),
        ("sync=dsync", True),
        ("sync=none", True),
    ],
)
def test_syncs_that_write_metadata_are_refused_on_files(line: str, is_taken: bool) -> None:
    pattern = parse_job_file(f"[a]\nrw=randwrite\n{line}\n".encode(), "mine.fio")
    if is_taken:
        require_data_only_writes(pattern)
    else:
        with pytest.raises(UsageError, match=r"fdatasync=N .*sync=dsync"):
            require_data_only_writes(pattern)


def test_uniform_loads_are_recognised() -> None:
    uniform = {name for name in list_workloads() if find_workload(name).is_uniform}
    assert uniform == {"random-4k", "pts-enterprise", "pts-client", "mixed-70-30"}


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ("offset=50%", "", "offset"),
        ("offset_increment=1g", "", "offset_increment"),
        ("size=1%", "size=99%", "size"),
        ("filename=/dev/sda", "filename=/dev/sdb", "filename"),
        ("filename=/dev/sda", "", "filename"),
    ],
)
def test_jobs_that_write_to_different_parts_are_refused(first: str, second: str, named: str) -> None:
    text = f"[a]\nrw=randwrite\n{first}\n[b]\nrw=randwrite\n{second}\n"
    with pytest.raises(BadInput, match=rf"x\.fio: .*{named}"):
        parse_job_file(text.encode(), "x.fio")


def test_jobs_with_the_same_range_are_accepted() -> None:
    text = b"[global]\noffset=0\nsize=100%\nfilename=/dev/sda\n[a]\nrw=randwrite\n[b]\nrw=randwrite\n"
    assert len(parse_job_file(text, "x.fio").jobs) == 2


def test_fio_job_file_loses_the_options_of_the_sweep(tmp_path: Path) -> None:
    file = tmp_path / "mine.fio"
    file.write_bytes(USERS)
    pattern = find_workload(str(file))
    assert pattern.name == "mine"
    assert pattern.left_out == ("filename", "runtime", "size", "time_based")
    writer, mixed = pattern.jobs
    assert writer.options["bs"] == "16k"
    assert (writer.options["ioengine"], writer.options["iodepth"]) == ("io_uring", "64")
    assert (mixed.thread_count, mixed.write_share, mixed.options["rw"]) == (2, Fraction(3, 10), "randrw")
    words = build_round_arguments(pattern, WINDOW, 3 << 20, 9)
    assert not any("nvme0n1" in word or word.startswith(("--runtime", "--time_based")) for word in words)
    assert words.count(f"--filename={WINDOW.path}") == 1
    # Each of three threads writes 1 MiB; the mixed threads transfer 10/3 as much.
    assert [word for word in words if word.startswith("--io_size")] == [
        "--io_size=1048576",
        "--io_size=3497984",
        "--io_size=3497984",
    ]
    seeds = [word for word in words if word.startswith("--randseed")]
    assert len(set(seeds)) == 3


@pytest.mark.parametrize(
    "line",
    [
        "exec_prerun=/bin/sh -c boom",
        "exec_postrun=true",
        "ioengine=external:/tmp/evil.so",
        "ioengine=http",
        "ioengine=exec",
        "directory=/etc",
        "opendir=/etc",
        "write_iolog=/etc/passwd",
        "read_iolog=/etc/passwd",
        "write_bw_log=/etc/passwd\nunlink=1",
        "verify_state_save=1",
        "bs=${HOME}",
        "bs=4k $(id)",
        "bs=4k --rw=read",
        "include other.fio",
        "rw=randtrim",
        "rw=read",
        "rw=randrw\nrwmixread=100",
        "rw=randrw\nrwmixread=lots",
        "numjobs=0",
        "numjobs=65",
        "allow_mounted_write=1",
        "trigger=boom",
        # fio maps its buffers to that file, so that every buffer write goes there as well.
        "mem=mmapshared:/dev/sdb",
        "mem=mmap:/etc/passwd",
        "iomem=mmaphuge:/dev/sdb",
        "mem=cudamalloc",
        # The page cache absorbs the writes, and the results would show memory.
        "direct=0",
        "direct=false",
    ],
)
def test_options_with_side_effects_or_without_writes_are_refused(line: str) -> None:
    with pytest.raises(BadInput, match=r"mine\.fio"):
        parse_job_file(f"[a]\nrw=randwrite\n{line}\n".encode(), "mine.fio")


@pytest.mark.parametrize("line", ["mem=malloc", "iomem=mmap", "mem=shm", "direct", "direct=1"])
def test_private_memory_and_direct_io_are_accepted(line: str) -> None:
    [job] = parse_job_file(f"[a]\nrw=randwrite\n{line}\n".encode(), "mine.fio").jobs
    assert job.options["direct"] == "1"


def test_include_is_refused_with_a_remedy() -> None:
    with pytest.raises(BadInput, match=r"line 3: .include other\.fio"):
        parse_job_file(b"[a]\nrw=randwrite\ninclude other.fio\n", "mine.fio")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[global]\nrw=randwrite\n",
        b"rw=randwrite\n[a]\n",
        b"[a]\nbs=4k\n",
        b"[a]\nrw=randwrite\n" * 65,
        b"\xff\xfe[a]",
    ],
)
def test_invalid_job_file_is_refused(raw: bytes) -> None:
    with pytest.raises(BadInput):
        parse_job_file(raw, "mine.fio")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "job = 5",
        "[[job]]\nrw = 'randwrite'\n[other]",
        "[[job]]\nrw = ['randwrite']",
        "[[job]]\nrw = 'randwrite'\nexec_prerun = 'true'",
        "[[job]]\nrw = 'randwrite'\nbs = '4k\\nrw=read'",
        "description = 5\n[[job]]\nrw = 'randwrite'",
    ],
)
def test_invalid_workload_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        parse_workload(text.encode(), "mine.toml")


@pytest.mark.parametrize("text", ["random4k", "", "../random-4k", "/etc/passwd", "none.fio", "none.toml"])
def test_unknown_workload_lists_the_known_names(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_workload(text)
    assert "random-4k" in str(refused.value) or os.strerror(errno.ENOENT) in str(refused.value)


def test_sweep_and_workload_options_do_not_overlap() -> None:
    assert not SWEEP_OPTIONS & REQUEST_OPTIONS


def test_seeds_differ_by_place_and_are_kept() -> None:
    seeds = {derive_seed(secret, level, number) for secret in "ab" for level in "xy" for number in range(50)}
    assert len(seeds) == 200
    assert derive_seed("a", "x", 1) == derive_seed("a", "x", 1)
    assert all(0 < seed < 1 << 57 for seed in seeds)


def test_a_fill_is_whole_and_in_order() -> None:
    words = build_fill_arguments(LoadWindow("/proc/7/fd/3", 3 << 20, 1 << 20), 5)
    assert {"--rw=write", "--offset=1048576", "--size=3145728", "--io_size=3145728"} <= set(words)
