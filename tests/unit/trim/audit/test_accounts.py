"""Drive counters around a trim: believed if they match the completed discards, otherwise silent with a
reason."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.sinks.trim_audit import build_audit_document, format_audit
from opwatch.trim.audit.accounts import Account, CounterEvidence, CounterMeaning, judge_account
from opwatch.trim.audit.audit import Audit, AuditEvidence, Held, ReadBack, Verdict
from opwatch.trim.audit.flow import Flow, SenderKind, Stage, Trace
from opwatch.trim.audit.ledger import build_audit
from opwatch.trim.space.lba_status import SentinelMap
from opwatch.trim.stack.layers import Kind
from opwatch.trim.stale.sentinel import ReadsAs
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_flow,
    make_layer,
    make_read_back,
    make_stack,
)

MIB = 1 << 20
DISK = make_layer("sda", "8:0", provisioning_mode="unmap")


def make_trace(n_bytes: int = 100 * MIB, whole: int | None = None) -> Trace:
    return Trace(tuple(make_disk_flows("sda", "8:0", n_bytes, whole)))


def make_account(
    before: int, after: int | None, counts: CounterMeaning = CounterMeaning.TRIMMED, unit: int = 512
) -> Account:
    return Account("sda", "log CAh E5", counts, unit, before, after)


def test_count_that_equals_completed_bytes_is_proof() -> None:
    judged = judge_account(make_account(1000, 1000 + 100 * MIB // 512), make_trace())
    assert judged.bearing is CounterEvidence.PROVES
    assert f"{100 * MIB} B" in judged.words


def test_whole_granules_also_prove_the_trim() -> None:
    """The drive counts the bytes freed, not the bytes requested."""
    judged = judge_account(make_account(0, 90 * MIB // 512), make_trace(100 * MIB, 90 * MIB))
    assert judged.bearing is CounterEvidence.PROVES


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (5, 5, "move"),
        (5, 6, "something"),
        (5, 4, "direction"),
        (5, None, "again"),
        (0, 100 * MIB // 512 + 1, "something"),
    ],
)
def test_other_counts_are_silent(before: int, after: int | None, words: str) -> None:
    judged = judge_account(make_account(before, after), make_trace())
    assert judged.bearing is CounterEvidence.SILENT
    assert words in judged.words


def test_count_without_a_trim_proves_nothing() -> None:
    assert judge_account(make_account(5, 5), Trace(())).bearing is CounterEvidence.SILENT


def test_a_failed_discard_is_not_counted() -> None:
    flows = (
        *make_disk_flows("sda", "8:0", 60 * MIB),
        make_flow(Stage.DONE, "8:0", 40 * MIB, disk="sda", status=10),
    )
    assert judge_account(make_account(0, 100 * MIB // 512), Trace(flows)).bearing is CounterEvidence.SILENT
    assert judge_account(make_account(0, 60 * MIB // 512), Trace(flows)).bearing is CounterEvidence.PROVES


def test_trims_by_other_processes_are_included() -> None:
    flows = (
        *make_disk_flows("sda", "8:0", 60 * MIB),
        *make_disk_flows("sda", "8:0", 40 * MIB, who=SenderKind.OTHER),
    )
    assert judge_account(make_account(0, 100 * MIB // 512), Trace(flows)).bearing is CounterEvidence.PROVES


def test_command_counts_confirm_but_do_not_prove() -> None:
    flows = [
        make_flow(Stage.ISSUED, "8:0", MIB, disk="sda", count=7),
        make_flow(Stage.REQUEUED, "8:0", MIB, disk="sda", count=2),
    ]
    traced = Trace((*flows, make_flow(Stage.DONE, "8:0", MIB, disk="sda", count=5)))
    assert (
        judge_account(make_account(10, 15, CounterMeaning.COMMANDS, 1), traced).bearing
        is CounterEvidence.CONFIRMS
    )
    assert (
        judge_account(make_account(10, 17, CounterMeaning.COMMANDS, 1), traced).bearing
        is CounterEvidence.SILENT
    )


def test_shrinking_map_is_proof() -> None:
    fell = make_account(300 * MIB, 200 * MIB, CounterMeaning.HELD, 1)
    assert judge_account(fell, make_trace()).bearing is CounterEvidence.PROVES
    less = judge_account(replace(fell, after=250 * MIB), make_trace())
    assert less.bearing is CounterEvidence.SILENT
    assert f" {50 * MIB} B " in less.words and f" {100 * MIB} B " in less.words


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.sampled_from(list(CounterMeaning)))
def test_only_an_exact_match_is_accepted(before: int, after: int, counts: CounterMeaning) -> None:
    judged = judge_account(make_account(before, after, counts, 1), make_trace())
    wanted = 1 if counts is CounterMeaning.COMMANDS else 100 * MIB
    moved = before - after if counts is CounterMeaning.HELD else after - before
    assert (judged.bearing is not CounterEvidence.SILENT) == (moved == wanted)
    assert judged.words


# --- accounts in an audit ---


def audit_reached(
    *accounts: Account,
    read_back: ReadBack | None = None,
    in_use: Held | None = None,
    flows: list[Flow] | None = None,
) -> Audit:
    given_flows = flows or make_disk_flows("sda", "8:0", 100 * MIB)
    base: AuditEvidence = make_evidence(
        make_stack(DISK), [make_extent_flow("8:0", 100 * MIB), *given_flows], 100 * MIB, read_back=read_back
    )
    return build_audit(replace(base, accounts=accounts, in_use={"sda": in_use} if in_use else {}), "/m")


FITS = make_account(0, 100 * MIB // 512)


def test_matching_counter_proves_the_trim() -> None:
    result = audit_reached(FITS)
    assert result.verdict is Verdict.PROVEN
    assert result.reasons == ()
    assert any("proves" in line for line in format_audit(result))
    [counter] = build_audit_document(result)["counters"]
    assert (counter["bearing"], counter["moved"], counter["unit_bytes"]) == ("proves", 100 * MIB, 512)


@pytest.mark.parametrize(
    "other", [make_account(7, 7), make_account(3, 4, CounterMeaning.COMMANDS, 1), replace(FITS, device="sdb")]
)
def test_accepted_where_no_counter_fits(other: Account) -> None:
    result = audit_reached(other)
    assert result.verdict is Verdict.ACCEPTED
    assert [reason.code for reason in result.reasons] == ["advisory"]


def test_used_bytes_that_stay_high_contradict_a_counter() -> None:
    """An unchanged NUSE, above the most that could be left, outweighs a counter of requested bytes."""
    result = audit_reached(FITS, in_use=Held(1000 * MIB, 1000 * MIB))
    assert result.verdict is Verdict.UNKNOWN
    [why] = result.reasons
    assert why.code == "advisory"
    most = 924 * MIB
    assert re.findall(r"(\d+) B", why.observed) == [str(1000 * MIB), str(most)]


@pytest.mark.parametrize(
    "in_use",
    [
        Held(1024 * MIB, 1024 * MIB),  # always reports the whole drive
        Held(1000 * MIB, 924 * MIB),
        Held(1000 * MIB, 930 * MIB, written=6 * MIB),
        Held(1000 * MIB, 1000 * MIB, written=None),
    ],
)
def test_used_bytes_within_bounds_are_accepted(in_use: Held) -> None:
    assert audit_reached(in_use=in_use).verdict is Verdict.ACCEPTED


def test_bytes_written_during_the_trim_are_allowed_for() -> None:
    result = audit_reached(in_use=Held(1000 * MIB, 931 * MIB, written=6 * MIB))
    assert result.verdict is Verdict.UNKNOWN
    assert f" {6 * MIB} B " in result.reasons[0].observed


def test_bytes_possibly_discarded_twice_are_not_a_contradiction() -> None:
    """btrfs discards some bytes twice, and during a watch other processes may trim repeatedly."""
    flows = [make_extent_flow("8:0", 100 * MIB), *make_disk_flows("sda", "8:0", 100 * MIB)]
    in_use = {"sda": Held(1000 * MIB, 1000 * MIB)}
    base = replace(make_evidence(make_stack(DISK), flows, 100 * MIB), in_use=in_use)
    assert build_audit(base, "/m").verdict is Verdict.UNKNOWN
    assert build_audit(replace(base, answer=None), "/m").verdict is Verdict.ACCEPTED
    twice = replace(base, before=make_stack(DISK, kind="btrfs"))
    assert build_audit(twice, "/m").verdict is Verdict.ACCEPTED


def test_sentinels_that_can_still_be_read_outweigh_a_counter() -> None:
    result = audit_reached(FITS, read_back=make_read_back({"sda": {ReadsAs.UNCHANGED: MIB}}))
    assert result.verdict is Verdict.UNKNOWN


def test_each_disk_must_be_proven() -> None:
    array = make_layer("md0", "9:0", Kind.MD, "sda", "sdb", level="raid0")
    both = make_stack(array, DISK, make_layer("sdb", "8:16"))
    flows = [
        make_extent_flow("9:0", 200 * MIB),
        make_flow(Stage.BIO, "9:0", 200 * MIB, disk="md0"),
        *make_disk_flows("sda", "8:0", 100 * MIB),
        *make_disk_flows("sdb", "8:16", 100 * MIB),
    ]
    base = make_evidence(both, flows, 200 * MIB)
    other = replace(FITS, device="sdb")
    assert build_audit(replace(base, accounts=(FITS,)), "/m").verdict is Verdict.ACCEPTED
    assert build_audit(replace(base, accounts=(FITS, other)), "/m").verdict is Verdict.PROVEN


# --- sentinels in the drive's own map ---


def audit_by_map(sentinel_map: SentinelMap, **bytes_: int) -> Audit:
    by_kind = {ReadsAs(name): count for name, count in bytes_.items()}
    return audit_reached(read_back=make_read_back({"sda": by_kind}, {"sda": sentinel_map}))


def test_sentinel_gone_from_the_map_is_proof_for_any_data() -> None:
    """A drive may return old data for blocks it has deallocated."""
    assert audit_by_map(SentinelMap(MIB, MIB, 0), unchanged=MIB).verdict is Verdict.PROVEN
    assert audit_by_map(SentinelMap(MIB, MIB, 0), zeros=MIB).verdict is Verdict.PROVEN


def test_sentinel_still_in_the_map_is_not_proof() -> None:
    """The sentinel reads as zeros although the drive still holds the block."""
    result = audit_by_map(SentinelMap(MIB, MIB, MIB), zeros=MIB)
    assert result.verdict is Verdict.UNKNOWN
    assert " still " in result.reasons[0].observed
    assert audit_by_map(SentinelMap(MIB, MIB, MIB // 2), zeros=MIB).verdict is Verdict.PARTIAL


@pytest.mark.parametrize(
    ("sentinel_map", "why"),
    [
        (SentinelMap(0, 0, 0), "granule"),
        (SentinelMap(MIB, MIB // 2, 0), "ignores"),
        (SentinelMap(MIB, MIB, None), "again"),
    ],
)
def test_unusable_map_is_ignored_with_a_reason(sentinel_map: SentinelMap, why: str) -> None:
    """The verdict then rests on the data read back, and the reason is printed."""
    result = audit_by_map(sentinel_map, zeros=MIB)
    assert result.verdict is Verdict.PROVEN
    assert audit_by_map(sentinel_map, unchanged=MIB).verdict is Verdict.UNKNOWN
    assert sentinel_map.reason
    assert why in sentinel_map.reason
    assert any(why in line for line in format_audit(result))
