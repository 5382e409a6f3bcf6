"""Losses of a trace: one line per loss, and no alarm for a loss with a known cause."""

from __future__ import annotations

import re

import pytest

from opwatch.samples.entries import DiskAdded, IntervalEnded, ProgramsSkipped, RunEnded, RunEntry
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.sample import DiskSample
from opwatch.trace.account.losses import Loss, list_losses, tally_losses
from opwatch.trace.trust import LossAccount, Reading, account_losses
from tests.unit.support.sample_run import S, make_disk_sample
from tests.unit.support.samples import Op, make_sample
from tests.unit.trace.test_trust import (
    add_counts,
    make_account,
    make_counted_stat,
    make_idle_reading,
    make_reads,
    make_stat,
)


def find_losses(
    account: LossAccount, in_flight: int = 0, queues: int = 0, *, is_blind: bool = False
) -> list[Loss]:
    return list(
        list_losses(tally_losses(account, in_flight, queues), account, is_blind=is_blind, is_whole=True)
    )


def find_alarms(account: LossAccount, in_flight: int = 0, queues: int = 0) -> list[str]:
    return [loss.words for loss in find_losses(account, in_flight, queues) if not loss.is_explained]


# A missed completion: the kernel counted the request and its bytes, and its slot stayed occupied.
MISSED = make_account(
    make_idle_reading(
        make_sample(1, read=make_reads(23, issued=24, overwritten=1)),
        add_counts({"read": 24}, {"read": 24 * 4096}),
    )
)


def test_missed_completion_is_a_single_loss() -> None:
    [loss] = find_losses(MISSED)
    assert not loss.is_explained
    assert "1 read (4096 bytes)" in loss.words


def test_missed_completion_is_not_an_alarm_if_the_kernel_skips_programs() -> None:
    [loss] = find_losses(MISSED, is_blind=True)
    assert loss.is_explained
    assert "1 read (4096 bytes)" in loss.words
    assert "PID 1" in loss.words


def test_skipped_programs_explain_only_that_many_requests() -> None:
    end = make_idle_reading(
        make_sample(1, read=make_reads(20)), add_counts({"read": 23}, {"read": 23 * 4096})
    )
    [loss] = find_losses(make_account(end, misses=3))
    assert loss.is_explained
    explained, rest = find_losses(make_account(end, misses=2))
    assert (explained.is_explained, rest.is_explained) == (True, False)
    assert re.search(r"\b1 request\b", rest.words)


def test_skipped_programs_are_not_a_loss_on_a_complete_disk() -> None:
    assert find_losses(make_account(Reading(make_sample(1), make_stat(), make_stat()), misses=4)) == []
    nothing_kept = make_counted_stat()
    unknown = account_losses(
        make_idle_reading(make_sample(0), nothing_kept), make_idle_reading(make_sample(1), nothing_kept), 4
    )
    [loss] = find_losses(unknown)
    assert loss.is_explained and re.search(r"\b4 requests\b", loss.words)


def test_request_without_room_in_the_map_is_a_single_loss() -> None:
    """The request is issued, and its completion finds no recorded issue."""
    read = make_reads(5, issued=7, map_full=2, unmatched=2, ends=7, unseen_bytes=2 * 4096)
    [loss] = find_losses(make_account(make_idle_reading(make_sample(1, read=read), make_stat(7))))
    assert loss.is_explained
    assert "2 requests" in loss.words


@pytest.mark.parametrize("is_blind", [False, True])
def test_loss_without_a_cause_stays_an_alarm(is_blind: bool) -> None:
    fewer = make_account(make_idle_reading(make_sample(1, read=make_reads(23)), make_stat(20)))
    back = make_account(make_idle_reading(make_sample(1, read=make_reads(5, clock_back=2)), make_stat(5)))
    for verdict, number in ((fewer, "3 reads (12288 bytes)"), (back, "2 requests")):
        [loss] = find_losses(verdict, is_blind=is_blind)
        assert (loss.is_explained, number in loss.words) == (False, True)


def test_loss_has_a_bound() -> None:
    """Four more reads completed between the two readings, and may or may not be traced."""
    [loss] = find_losses(
        make_account(Reading(make_sample(1, read=make_reads(19)), make_stat(20), make_stat(24)))
    )
    assert "1 to 5 reads" in loss.words


def test_missing_bytes_alone_are_a_loss() -> None:
    verdict = make_account(
        make_idle_reading(make_sample(1, read=make_reads(2)), add_counts({"read": 2}, {"read": 3 * 4096}))
    )
    [loss] = find_losses(verdict)
    assert "4096 bytes" in loss.words


def test_flushes_in_flight_at_the_start_are_excused_by_queue() -> None:
    flush = Op([1000] * 3, scalars={"ends": 4, "unmatched": 1})
    verdict = make_account(make_idle_reading(make_sample(1, flush=flush), add_counts({"flush": 4}, {})))
    assert find_alarms(verdict, 0, 1) == []
    assert len(find_alarms(verdict, 0, 0)) == 1


def _make_unmatched_sample(at_s: int, unmatched: int) -> DiskSample:
    """Return a disk with two requests in flight at the start and `unmatched` completions without an issue."""
    whole = make_disk_sample("sda", at_s, 0)
    read = make_reads(10, unmatched=unmatched, ends=10 + unmatched, unseen_bytes=4096 * unmatched)
    ended = make_idle_reading(make_sample(at_s * S, read=read), make_stat(10 + unmatched))
    disk = whole.disk
    kind = type(disk)
    two = kind(disk.device, disk.origin, disk.level, disk.backend, (), in_flight=2)
    return DiskSample(two, ended, 0, whole.anchor)


def process_entries(entries: list[RunEntry]) -> tuple[list[Observation], RunPresenter]:
    story, observations = RunPresenter(), []
    for entry in entries:
        observations += [one for one in story.process_entry(entry) if isinstance(one, Observation)]
    return observations, story


def test_the_requests_in_flight_at_the_start_are_excused_once_a_run() -> None:
    """Any interval may contain these completions, but no more than were in flight at the start."""
    unmatched = [0, 1, 2, 3, 5, 5]
    samples = [_make_unmatched_sample(at_s + 1, count) for at_s, count in enumerate(unmatched)]
    run: list[RunEntry] = [DiskAdded(0, samples[0])]
    run += [*(IntervalEnded({0: one}) for one in samples[1:]), RunEnded({0: samples[-1]})]
    *intervals, whole = process_entries(run)[0]
    assert [len(one.unexplained) for one in intervals] == [0, 0, 1, 1, 0]
    assert "1 request" in intervals[2].unexplained[0]
    assert "2 requests" in intervals[3].unexplained[0]
    assert "3 requests" in whole.unexplained[0]


def _make_traced_sample(at_s: int, traced: int, kernel: int, overwritten: int = 0) -> DiskSample:
    whole = make_disk_sample("sda", at_s, 0)
    read = make_reads(traced, issued=kernel, overwritten=overwritten)
    return DiskSample(
        whole.disk, make_idle_reading(make_sample(at_s * S, read=read), make_stat(kernel)), 0, whole.anchor
    )


def test_slot_found_occupied_later_is_not_a_second_loss() -> None:
    samples = [
        _make_traced_sample(1, 0, 0),
        _make_traced_sample(2, 9, 10),
        _make_traced_sample(3, 18, 19),
        _make_traced_sample(4, 30, 31, overwritten=1),
    ]
    run: list[RunEntry] = [DiskAdded(0, samples[0])]
    run += [*(IntervalEnded({0: one}) for one in samples[1:]), RunEnded({0: samples[-1]})]
    observations, story = process_entries(run)
    assert [len(one.losses) for one in observations] == [1, 0, 0, 1]
    assert len(story.unexplained) == 1
    assert story.unexplained[0].startswith("sda (of dm-0): ") or story.unexplained[0].startswith("sda: ")


def test_no_interval_alarms_once_the_kernel_is_known_to_skip_programs() -> None:
    samples = [_make_traced_sample(1, 0, 0), _make_traced_sample(2, 9, 10), _make_traced_sample(3, 17, 19)]
    run: list[RunEntry] = [DiskAdded(0, samples[0]), IntervalEnded({0: samples[1]}), ProgramsSkipped(3 * S)]
    run += [IntervalEnded({0: samples[2]}), RunEnded({0: samples[2]})]
    observations, story = process_entries(run)
    assert [(len(one.unexplained), len(one.explained_losses)) for one in observations] == [
        (1, 0),
        (0, 1),
        (0, 1),
    ]
    assert (story.unexplained, len(story.explained)) == ([], 1)
    assert "2 reads" in story.explained[0]
