"""Programs that the block tracer loads, and fallbacks if the kernel refuses them."""

from __future__ import annotations

import errno

import pytest

from opwatch.trace.programs import (
    BIO_PROGRAMS,
    BIO_SUBMITTED,
    FLOORS,
    REQUEST_PROGRAMS,
    SLOW_PROGRAMS,
    Program,
    ProgramSet,
    list_program_sets,
    load_first,
)
from opwatch.trim.history.changes import select_history_programs
from tests.unit.support.bpf_sources import read_sections


class RefusedError(Exception):
    """(errno, what, log), as the extension raises the error."""


def list_names(way: ProgramSet) -> list[str]:
    return [program.name for program in way]


def test_completion_programs_are_attached_first() -> None:
    ways = list_program_sets(requests=True, bios=True, queue_time=True)
    for name, suffix in (("tp_btf", ""), ("raw_tp", "_raw")):
        order = list_names(ways[name])
        expected = (*REQUEST_PROGRAMS, *BIO_PROGRAMS, BIO_SUBMITTED)
        assert sorted(order) == sorted(name + suffix for name in expected)
        assert order.index(f"rq_complete{suffix}") < order.index(f"rq_issue{suffix}")
        assert order.index(f"bio_complete{suffix}") < order.index(f"bio_queue{suffix}")


def test_only_needed_programs_are_loaded() -> None:
    only_bios = list_program_sets(requests=False, bios=True, queue_time=True)["tp_btf"]
    assert set(list_names(only_bios)) == set(BIO_PROGRAMS)
    without_queue = list_program_sets(requests=True, bios=False, queue_time=False)["raw_tp"]
    assert set(list_names(without_queue)) == {"rq_complete_raw", "rq_requeue_raw", "rq_issue_raw"}


def test_slow_requests_are_counted_by_separate_programs() -> None:
    slow = list_program_sets(requests=True, bios=False, queue_time=False, slow=True)["tp_btf"]
    assert list_names(slow) == ["rq_slow", "rq_requeue", "rq_submit", "rq_getrq", "rq_issue"]
    assert {program.name: program.needs for program in slow if program.needs} == {
        "rq_submit": "btf_trace_block_io_start",
        "rq_getrq": "!btf_trace_block_io_start",
    }
    without = list_program_sets(requests=True, bios=True, queue_time=True)["tp_btf"]
    assert not {*list_names(without)} & {*SLOW_PROGRAMS}
    assert set(
        list_names(list_program_sets(requests=False, bios=True, queue_time=False, slow=True)["tp_btf"])
    ) == set(BIO_PROGRAMS)


def test_owners_are_counted_by_separate_programs() -> None:
    by_group = list_program_sets(requests=True, bios=True, queue_time=False, owners=True)["tp_btf"]
    assert list_names(by_group) == ["rq_slow", "rq_requeue", "bio_owned", "rq_issue", "bio_queue"]
    by_process = list_program_sets(requests=True, bios=False, queue_time=False, owners=True, submitters=True)
    assert {*list_names(by_process["raw_tp"])} >= {"rq_slow_raw", "rq_submit_raw", "rq_getrq_raw"}


def test_queue_program_is_left_out_without_its_tracepoint() -> None:
    way = list_program_sets(requests=True, bios=False, queue_time=True)["tp_btf"]
    assert [program for program in way if program.needs] == [Program("rq_queue", "btf_trace_block_io_start")]


def test_every_name_is_that_of_a_program() -> None:
    blk = read_sections("block/blk.bpf.c", "block/rq.h", "block/bio.h", "block/waits.h")
    ways = list_program_sets(requests=True, bios=True, queue_time=True)
    slow = list_program_sets(requests=True, bios=True, queue_time=True, slow=True, owners=True)
    chosen = {name for which in (ways, slow) for way in which.values() for name in list_names(way)}
    assert chosen == blk.keys()
    for hook, way in (*ways.items(), *slow.items()):
        assert {blk[name].partition("/")[0] for name in list_names(way)} == {hook}
    floors = {name for way in FLOORS.values() for name in list_names(way)}
    assert floors == read_sections("lib/floor.bpf.c").keys()
    assert (
        set(list_names(select_history_programs("nvme0n1"))) == read_sections("history/history.bpf.c").keys()
    )
    assert list_names(select_history_programs("sda")) == ["history_done"]


FIRST, SECOND = (Program("first"),), (Program("second"),)


def load_with_refusals(*refused: ProgramSet, number: int = errno.EINVAL) -> tuple[list[ProgramSet], str]:
    """Return the sets of programs tried, and the result."""
    tried: list[ProgramSet] = []

    def load_or_refuse(way: ProgramSet) -> str:
        tried.append(way)
        if way in refused:
            raise RefusedError(number, "cannot load", f"log of {way[0].name}. ")
        return way[0].name

    try:
        loaded, way = load_first([FIRST, SECOND], load_or_refuse, RefusedError, {errno.EPERM})
    except RefusedError as error:
        return tried, str(error.args)
    assert loaded == way[0].name
    return tried, loaded


def test_first_program_set_accepted_by_the_kernel_is_used() -> None:
    assert load_with_refusals() == ([FIRST], "first")
    assert load_with_refusals(FIRST) == ([FIRST, SECOND], "second")


def test_logs_of_every_refused_set_are_reported() -> None:
    assert load_with_refusals(FIRST, SECOND) == (
        [FIRST, SECOND],
        str((errno.EINVAL, "cannot load", "log of first. log of second. ")),
    )


def test_missing_privileges_do_not_cause_a_fallback() -> None:
    tried, said = load_with_refusals(FIRST, SECOND, number=errno.EPERM)
    assert tried == [FIRST]
    assert "log of first" in said


def test_extension_refuses_unknown_programs() -> None:
    native = pytest.importorskip("opwatch._native")
    if not hasattr(native, "Floor"):
        pytest.skip("built without the tracer")
    with pytest.raises(TypeError):
        native.Floor(3)
    with pytest.raises(TypeError, match="attachment"):
        native.Floor(["floor_issue"])
    with pytest.raises(ValueError, match=r"\bprogram\b"):
        native.Floor([("floor_issue", "", 3)])
    with pytest.raises(ValueError, match=r"\bprogram\b"):
        native.Floor([("x" * 32, "", 0)])
    with pytest.raises(ValueError, match="33 programs"):
        native.Floor([Program("floor_issue")] * 33)


@pytest.mark.parametrize("count", [1, 3])
def test_any_number_of_program_sets_is_tried_in_order(count: int) -> None:
    ways = [(Program(f"set{number}"),) for number in range(count)]
    tried: list[ProgramSet] = []

    def accept_last(way: ProgramSet) -> str:
        tried.append(way)
        if way is not ways[-1]:
            raise RefusedError(errno.EINVAL, "cannot load", "log")
        return "loaded"

    assert load_first(ways, accept_last, RefusedError, ()) == ("loaded", ways[-1])
    assert tried == ways
