"""Skipped runs of another process's BPF programs, from a fake /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.collectors.block.bpftrace import find_held_programs
from opwatch.collectors.block.held_programs import HeldPrograms
from opwatch.errors import OpwatchError


def format_fdinfo(identity: int, misses: int | str | None, kind: int = 26) -> str:
    """Return a program's fdinfo as 6.12 writes it; without `misses`, as 5.11 does."""
    lines = ["pos:\t0", "flags:\t02000002", "mnt_id:\t16", "ino:\t2084", f"prog_type:\t{kind}"]
    lines += ["prog_jited:\t1", "prog_tag:\t1b4e28ba2fa1a1d2", "memlock:\t4096", f"prog_id:\t{identity}"]
    lines += ["run_time_ns:\t0", "run_cnt:\t0"]
    lines += [] if misses is None else [f"recursion_misses:\t{misses}"]
    return "\n".join([*lines, "verified_insns:\t412", ""])


LINK = (
    "pos:\t0\nlink_type:\ttracing\nlink_id:\t7\nprog_tag:\t1b4e28ba2fa1a1d2\nprog_id:\t31\nattach_type:\t24\n"
)
MAP = "pos:\t0\nflags:\t02000002\nmap_type:\t1\nkey_size:\t8\nmap_id:\t9\n"


def make_process(tmp_path: Path, **descriptors: str) -> Path:
    """A fake /proc folder of the process, with descriptors named _3, _4 and so on."""
    folder = tmp_path / "4711" / "fdinfo"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in descriptors.items():
        (folder / name.removeprefix("_")).write_text(text)
    return folder.parent


def test_skipped_runs_of_all_programs_are_summed(tmp_path: Path) -> None:
    folder = make_process(
        tmp_path, _3=format_fdinfo(31, 4), _4=format_fdinfo(32, 13), _5=LINK, _6=MAP, _0="pos:\t0\n"
    )
    assert HeldPrograms(folder).count_skipped() == 17


def test_skipped_runs_are_read_again_each_time(tmp_path: Path) -> None:
    programs = HeldPrograms(make_process(tmp_path, _3=format_fdinfo(31, 4)))
    make_process(tmp_path, _3=format_fdinfo(31, 9))
    assert programs.count_skipped() == 9


def test_program_with_two_descriptors_counts_once(tmp_path: Path) -> None:
    assert (
        HeldPrograms(make_process(tmp_path, _3=format_fdinfo(31, 4), _4=format_fdinfo(31, 4))).count_skipped()
        == 4
    )


def test_programs_of_another_kind_do_not_count(tmp_path: Path) -> None:
    folder = make_process(tmp_path, _3=format_fdinfo(31, 4), _4=format_fdinfo(32, 100, kind=2))
    assert HeldPrograms(folder).count_skipped() == 4


@pytest.mark.parametrize("misses", [None, "many", "-1", ""])
def test_program_without_a_count_makes_the_sum_unknown(tmp_path: Path, misses: str | None) -> None:
    folder = make_process(tmp_path, _3=format_fdinfo(31, 4), _4=format_fdinfo(32, misses))
    assert HeldPrograms(folder).count_skipped() is None
    assert find_held_programs(folder, 2) is None


def test_missing_programs_are_not_a_count_of_zero(tmp_path: Path) -> None:
    assert HeldPrograms(make_process(tmp_path, _5=LINK)).count_skipped() is None


def test_another_program_behind_the_descriptor_is_an_error(tmp_path: Path) -> None:
    programs = HeldPrograms(make_process(tmp_path, _3=format_fdinfo(31, 4)))
    make_process(tmp_path, _3=format_fdinfo(77, 4))
    with pytest.raises(OpwatchError, match=r"\b31\b"):
        programs.count_skipped()


def test_a_closed_descriptor_is_an_error(tmp_path: Path) -> None:
    folder = make_process(tmp_path, _3=format_fdinfo(31, 4))
    programs = HeldPrograms(folder)
    (folder / "fdinfo" / "3").unlink()
    with pytest.raises(OpwatchError, match=r"\b31\b"):
        programs.count_skipped()


@pytest.mark.parametrize(("probes", "misses"), [(2, 17), (3, None), (1, None)])
def test_each_probe_must_have_its_program(tmp_path: Path, probes: int, misses: int | None) -> None:
    programs = find_held_programs(
        make_process(tmp_path, _3=format_fdinfo(31, 4), _4=format_fdinfo(32, 13)), probes
    )
    assert (programs.count_skipped() if programs else None) == misses


def test_process_that_is_gone_has_no_programs(tmp_path: Path) -> None:
    assert find_held_programs(tmp_path / "4712", 2) is None
