"""Programs that the block tracer loads, and fallbacks if the kernel refuses them."""

from __future__ import annotations

import errno

import pytest

from opwatch.trace.programs import (
    BIO_PROGRAMS,
    FLOORS,
    REQUEST_PROGRAMS,
    SLOW_PROGRAMS,
    Program,
    Way,
    first_loaded,
    tracer_ways,
)
from opwatch.trim.history.changes import programs_of
from tests.unit.support.bpf_sources import section_of


class Refused(Exception):
    """(errno, what, log), as the extension raises the error."""


def names(way: Way) -> list[str]:
    return [program.name for program in way]


def test_ends_are_attached_before_beginnings() -> None:
    ways = tracer_ways(requests=True, bios=True, queue_time=True)
    for name, suffix in (("tp_btf", ""), ("raw_tp", "_raw")):
        order = names(ways[name])
        assert sorted(order) == sorted(name + suffix for name in (*REQUEST_PROGRAMS, *BIO_PROGRAMS))
        assert order.index(f"rq_complete{suffix}") < order.index(f"rq_issue{suffix}")
        assert order.index(f"bio_complete{suffix}") < order.index(f"bio_queue{suffix}")


def test_only_needed_programs_are_loaded() -> None:
    only_bios = tracer_ways(requests=False, bios=True, queue_time=True)["tp_btf"]
    assert set(names(only_bios)) == set(BIO_PROGRAMS)
    without_queue = tracer_ways(requests=True, bios=False, queue_time=False)["raw_tp"]
    assert set(names(without_queue)) == {"rq_complete_raw", "rq_requeue_raw", "rq_issue_raw"}


def test_slow_requests_have_programs_of_their_own() -> None:
    slow = tracer_ways(requests=True, bios=False, queue_time=False, slow=True)["tp_btf"]
    assert names(slow) == ["rq_slow", "rq_requeue", "rq_submit", "rq_getrq", "rq_issue"]
    assert {program.name: program.needs for program in slow if program.needs} == {
        "rq_submit": "btf_trace_block_io_start",
        "rq_getrq": "!btf_trace_block_io_start",
    }
    without = tracer_ways(requests=True, bios=True, queue_time=True)["tp_btf"]
    assert not {*names(without)} & {*SLOW_PROGRAMS}
    assert set(names(tracer_ways(requests=False, bios=True, queue_time=False, slow=True)["tp_btf"])) == set(
        BIO_PROGRAMS
    )


def test_owners_are_counted_by_programs_of_their_own() -> None:
    by_group = tracer_ways(requests=True, bios=True, queue_time=False, owners=True)["tp_btf"]
    assert names(by_group) == ["rq_slow", "rq_requeue", "bio_owned", "rq_issue", "bio_queue"]
    by_process = tracer_ways(requests=True, bios=False, queue_time=False, owners=True, submitters=True)
    assert {*names(by_process["raw_tp"])} >= {"rq_slow_raw", "rq_submit_raw", "rq_getrq_raw"}


def test_queue_program_is_left_out_without_its_tracepoint() -> None:
    way = tracer_ways(requests=True, bios=False, queue_time=True)["tp_btf"]
    assert [program for program in way if program.needs] == [Program("rq_queue", "btf_trace_block_io_start")]


def test_every_name_is_that_of_a_program() -> None:
    blk = section_of("block/blk.bpf.c", "block/rq.h", "block/bio.h")
    ways = tracer_ways(requests=True, bios=True, queue_time=True)
    slow = tracer_ways(requests=True, bios=True, queue_time=True, slow=True, owners=True)
    chosen = {name for which in (ways, slow) for way in which.values() for name in names(way)}
    assert chosen == blk.keys()
    for hook, way in (*ways.items(), *slow.items()):
        assert {blk[name].partition("/")[0] for name in names(way)} == {hook}
    floors = {name for way in FLOORS.values() for name in names(way)}
    assert floors == section_of("lib/floor.bpf.c").keys()
    assert set(names(programs_of("nvme0n1"))) == section_of("history/history.bpf.c").keys()
    assert names(programs_of("sda")) == ["history_done"]


FIRST, SECOND = (Program("first"),), (Program("second"),)


def refusing(*refused: Way, number: int = errno.EINVAL) -> tuple[list[Way], str]:
    """Return the sets of programs tried, and the result."""
    tried: list[Way] = []

    def load(way: Way) -> str:
        tried.append(way)
        if way in refused:
            raise Refused(number, "cannot load", f"log of {way[0].name}. ")
        return way[0].name

    try:
        loaded, way = first_loaded([FIRST, SECOND], load, Refused, {errno.EPERM})
    except Refused as error:
        return tried, str(error.args)
    assert loaded == way[0].name
    return tried, loaded


def test_first_program_set_accepted_by_the_kernel_is_used() -> None:
    assert refusing() == ([FIRST], "first")
    assert refusing(FIRST) == ([FIRST, SECOND], "second")


def test_logs_of_every_refused_set_are_reported() -> None:
    assert refusing(FIRST, SECOND) == (
        [FIRST, SECOND],
        str((errno.EINVAL, "cannot load", "log of first. log of second. ")),
    )


def test_no_rights_are_no_reason_to_try_another_way() -> None:
    tried, said = refusing(FIRST, SECOND, number=errno.EPERM)
    assert tried == [FIRST]
    assert "log of first" in said


def test_extension_refuses_unknown_programs() -> None:
    native = pytest.importorskip("opwatch._native")
    if not hasattr(native, "Floor"):
        pytest.skip("built without the tracer")
    with pytest.raises(TypeError, match="sequence"):
        native.Floor(3)
    with pytest.raises(TypeError, match="attachment"):
        native.Floor(["floor_issue"])
    with pytest.raises(ValueError, match="no such program"):
        native.Floor([("floor_issue", "", 3)])
    with pytest.raises(ValueError, match="no such program"):
        native.Floor([("x" * 32, "", 0)])
    with pytest.raises(ValueError, match="33 programs"):
        native.Floor([Program("floor_issue")] * 33)
