"""Loads by the names and file formats of other tools."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from opwatch.errors import BadInput, OpwatchError, UsageError
from opwatch.load.icf import parse_icf
from opwatch.load.plain import PlainLoad, parse_plain_load
from opwatch.load.vdbench import parse_vdbench
from opwatch.load.workload import LoadJob, LoadPattern, find_workload, parse_plain_loads, require_single_load
from tests.fuzz.loads import run as fuzzed

GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "loads"
BAD = Path(__file__).parents[2] / "fixtures" / "bad" / "loads"
VDBENCH = (GOOD / "mixed.vdb").read_text()
ICF = (GOOD / "whole-drive.icf").read_text()


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("rndwr", (0, 100, 16384, None)),
        ("rndrd", (100, 100, 16384, None)),
        ("rndrw", (60, 100, 16384, None)),
        ("seqwr", (0, 0, 16384, None)),
        ("4k-100-random", (0, 100, 4096, None)),
        ("64K-0-random", (0, 0, 65536, None)),
        ("4k-50-random-75-read", (75, 50, 4096, None)),
        ("rdpct=75,seekpct=100,xfersize=8k,threads=16", (75, 100, 8192, 16)),
        ("xfersize=128k,seekpct=seq", (100, 0, 131072, None)),
    ],
)
def test_name_of_another_tool_selects_its_load(text: str, shape: tuple[int, int, int, int | None]) -> None:
    assert parse_plain_load(text) == PlainLoad(text, *shape)


def test_unknown_load_name_is_none() -> None:
    assert [parse_plain_load(text) for text in ("random-4k", "rndxx", "4k-random", "mine.fio", "")] == [
        None
    ] * 5


@pytest.mark.parametrize(
    "text",
    [
        *("4k-101-random", "1-100-random", "100-100-random", "4k-100-random-200-read", "999999m-100-random"),
        *("rdpct=75,rdpct=75", "rdpct=x", "rdpct=-1", "seekpct=", "xfersize=8q", "threads=0", "threads=9999"),
        *("rdpct=75 seekpct=100", "rdpct=75,iorate=5", "xfersize=8k,50,4k,50", "rdpct=²"),
    ],
)
def test_misspelt_load_name_is_refused(text: str) -> None:
    with pytest.raises(OpwatchError):
        parse_plain_load(text)


def test_named_load_becomes_fio_options() -> None:
    assert find_workload("4k-100-random").jobs[0].options.items() >= {("rw", "randwrite"), ("bs", "4096")}
    mixed = find_workload("rdpct=75,seekpct=30,xfersize=8k,threads=16").jobs[0]
    assert mixed.options.items() >= {
        ("rw", "randrw"),
        ("rwmixread", "75"),
        ("percentage_random", "30"),
        ("iodepth", "16"),
    }
    assert find_workload("seqwr").jobs[0].options["rw"] == "write"


def test_read_only_load_is_refused_for_a_sweep() -> None:
    with pytest.raises(UsageError, match=r"rndrd: .* mixed-io "):
        find_workload("rndrd")


def test_partly_sequential_load_is_not_uniform() -> None:
    options = {"rw": "randwrite", "percentage_random": "50"}
    assert not LoadPattern("it", "", (LoadJob(options),)).is_uniform
    assert LoadPattern("it", "", (LoadJob(options | {"percentage_random": "100"}),)).is_uniform


def test_vdbench_file_contains_the_loads_of_its_runs() -> None:
    assert parse_plain_loads(str(GOOD / "mixed.vdb")) == [
        PlainLoad("small", 75, 100, 8192, 16),
        PlainLoad("large", 0, 0, 131072, 4),
    ]


def test_file_with_several_loads_is_refused_for_a_sweep() -> None:
    with pytest.raises(UsageError, match=r"mixed\.vdb: .* 2 .*\(small, large\)"):
        find_workload(str(GOOD / "mixed.vdb"))
    assert require_single_load([PlainLoad("a", 0, 100, 4096)], "it").name == "a"


def test_iometer_file_contains_its_workers_specifications() -> None:
    assert parse_plain_loads(str(GOOD / "whole-drive.icf")) == [
        PlainLoad("4 KiB; 0% Read; 100% random", 0, 100, 4096, 32)
    ]
    without = ICF.replace("\t4 KiB; 0% Read; 100% random\n'End assigned", "'End assigned")
    assert [one.name for one in parse_icf(without.encode(), "it")][1:] == ["64 KiB in order"]


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("rdpct=75", "rdpct=(75,25)", 4, "not a list"),
        ("rdpct=75", "rdpct=175", 8, "percentage"),
        ("rdpct=75", "hotband=(1,2)", 4, "'hotband' "),
        ("rdpct=75", "rdpct", 4, "write KEY=VALUE"),
        ("rd=small", "fwd=small", 8, "sd=, wd= and rd= "),
        ("iorate=max", "iorate=500", 7, "max"),
        ("openflags=o_direct", "openflags=o_sync", 2, "o_direct"),
        ("wd=wd_small   ", "wd=wd_* ", 8, r"\b2\b"),
        ("wd=wd_small   ", "wd=wd_none ", 8, r"\b0\b"),
        ("forthreads=(4)", "forthreads=(4,8)", 10, "not a list"),
        ("wd=wd_large", "wd=wd_small", 5, "duplicate"),
        ("wd=wd_l*,forthreads=(4)", "wd=wd_l*,", 10, "comma"),
        ("xfersize=8k", "xfersize=(4k,50,8k,50)", 4, "not a list"),
    ],
)
def test_unsupported_vdbench_line_is_refused_with_its_number(
    old: str, new: str, line: int, what: str
) -> None:
    assert old in VDBENCH
    with pytest.raises(BadInput, match=rf"it: line {line}\b.*{what}"):
        parse_vdbench(VDBENCH.replace(old, new, 1).encode(), "it")


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ("4096,100,0,100,0,1,4096,0", "4096,100,0,100,0,1,0,0", 30, "write 4096 "),
        ("4096,100,0,100,0,1,4096,0", "4096,60,0,100,0,1,4096,0", 30, "size"),
        ("4096,100,0,100,0,1,4096,0", "4096,100,0,100,5,1,4096,0", 30, "pauses"),
        ("4096,100,0,100,0,1,4096,0", "4096,100,0,100,0,1,4096,64", 30, "network"),
        ("4096,100,0,100,0,1,4096,0", "4096,100,0,100,0,1", 30, "6 values"),
        ("4096,100,0,100,0,1,4096,0", "4096,100,0,x,0,1,4096,0", 30, "whole"),
        ("'Test Type\n\tNORMAL", "'Test Type\n\tWORKERS", 18, "only NORMAL"),
        ("'Worker type\n\tDISK", "'Worker type\n\tNETWORK", 44, "only DISK"),
        ("'Ramp Up Time (s)", "'Strange label", 8, "understood"),
        ("Version 1.1.0", "something", 1, "heading"),
        ("specs\n\t4 KiB; 0% Read", "specs\n\t9 KiB; 0% Read", 52, "specification"),
    ],
)
def test_unsupported_iometer_line_is_refused_with_its_number(
    old: str, new: str, line: int, what: str
) -> None:
    assert old in ICF
    with pytest.raises(BadInput, match=rf"it: line {line}: .*{what}"):
        parse_icf(ICF.replace(old, new, 1).encode(), "it")


@pytest.mark.parametrize("path", sorted(BAD.iterdir()), ids=lambda path: path.name)
def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    with pytest.raises(BadInput):
        parse_plain_loads(str(path))


def test_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match=rf"nowhere\.vdb: {os.strerror(errno.ENOENT)}"):
        find_workload("/nowhere.vdb")


def test_changed_names_and_files_are_refused_or_sound() -> None:
    fuzzed(1500, 3)
