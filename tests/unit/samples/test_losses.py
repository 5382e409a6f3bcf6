"""Losses of a trace: one line per loss, and no alarm for a loss with a known cause."""

from __future__ import annotations

import pytest

from opwatch.samples.entries import Began, Blinded, Ended, RunEntry, Ticked
from opwatch.samples.observation import Observation
from opwatch.samples.sample import DiskSample
from opwatch.samples.story import Story
from opwatch.trace.account.losses import Loss, list_losses, tally_losses
from opwatch.trace.trust import Reading, Trust, trust
from tests.unit.support.a_run import S, disk_sample
from tests.unit.support.samples import Op, sample
from tests.unit.trace.test_trust import account, at_rest, counted, counted_as, reads, stat


def losses(account: Trust, in_flight: int = 0, queues: int = 0, *, is_blind: bool = False) -> list[Loss]:
    return list(
        list_losses(tally_losses(account, in_flight, queues), account, is_blind=is_blind, is_whole=True)
    )


def alarms(account: Trust, in_flight: int = 0, queues: int = 0) -> list[str]:
    return [loss.words for loss in losses(account, in_flight, queues) if not loss.is_explained]


# A missed completion: the kernel counted the request and its bytes, and its slot stayed occupied.
MISSED = account(
    at_rest(sample(1, read=reads(23, issued=24, overwritten=1)), counted({"read": 24}, {"read": 24 * 4096}))
)


def test_missed_completion_is_a_single_loss() -> None:
    [loss] = losses(MISSED)
    assert not loss.is_explained
    assert "1 read (4096 bytes)" in loss.words


def test_a_missed_completion_is_no_alarm_where_the_kernel_skips_programs() -> None:
    [loss] = losses(MISSED, is_blind=True)
    assert loss.is_explained
    assert "1 read (4096 bytes)" in loss.words
    assert "PID 1" in loss.words


def test_programs_skipped_explain_as_many_requests_and_no_more() -> None:
    end = at_rest(sample(1, read=reads(20)), counted({"read": 23}, {"read": 23 * 4096}))
    [loss] = losses(account(end, misses=3))
    assert loss.is_explained
    explained, rest = losses(account(end, misses=2))
    assert (explained.is_explained, rest.is_explained) == (True, False)
    assert "1 request more" in rest.words


def test_skipped_programs_are_no_loss_of_a_complete_disk() -> None:
    assert losses(account(Reading(sample(1), stat(), stat()), misses=4)) == []
    nothing_kept = counted_as()
    unknown = trust(at_rest(sample(0), nothing_kept), at_rest(sample(1), nothing_kept), 4)
    [loss] = losses(unknown)
    assert (loss.is_explained, "up to 4 requests" in loss.words) == (True, True)


def test_request_without_room_in_the_map_is_a_single_loss() -> None:
    """The request is issued, and its completion finds no recorded issue."""
    read = reads(5, issued=7, map_full=2, unmatched=2, ends=7, unseen_bytes=2 * 4096)
    [loss] = losses(account(at_rest(sample(1, read=read), stat(7))))
    assert loss.is_explained
    assert "2 requests" in loss.words


@pytest.mark.parametrize("is_blind", [False, True])
def test_loss_without_a_cause_stays_an_alarm(is_blind: bool) -> None:
    fewer = account(at_rest(sample(1, read=reads(23)), stat(20)))
    back = account(at_rest(sample(1, read=reads(5, clock_back=2)), stat(5)))
    for verdict, number in ((fewer, "3 reads (12288 bytes)"), (back, "2 requests")):
        [loss] = losses(verdict, is_blind=is_blind)
        assert (loss.is_explained, number in loss.words) == (False, True)


def test_a_loss_has_its_bound() -> None:
    """Four more reads completed between the two readings, and may or may not be traced."""
    [loss] = losses(account(Reading(sample(1, read=reads(19)), stat(20), stat(24))))
    assert "1 to 5 reads" in loss.words


def test_bytes_alone_are_a_loss() -> None:
    verdict = account(at_rest(sample(1, read=reads(2)), counted({"read": 2}, {"read": 3 * 4096})))
    [loss] = losses(verdict)
    assert "4096 bytes" in loss.words


def test_flushes_in_flight_at_the_start_are_excused_by_queue() -> None:
    flush = Op([1000] * 3, scalars={"ends": 4, "unmatched": 1})
    verdict = account(at_rest(sample(1, flush=flush), counted({"flush": 4}, {})))
    assert alarms(verdict, 0, 1) == []
    assert len(alarms(verdict, 0, 0)) == 1


def _with_unmatched(at_s: int, unmatched: int) -> DiskSample:
    """Return a disk with two requests in flight at the start and `unmatched` completions without an issue."""
    whole = disk_sample("sda", at_s, 0)
    read = reads(10, unmatched=unmatched, ends=10 + unmatched, unseen_bytes=4096 * unmatched)
    ended = at_rest(sample(at_s * S, read=read), stat(10 + unmatched))
    disk = whole.disk
    kind = type(disk)
    two = kind(disk.device, disk.origin, disk.level, disk.backend, (), in_flight=2)
    return DiskSample(two, ended, 0, whole.anchor)


def shown(entries: list[RunEntry]) -> tuple[list[Observation], Story]:
    story, observations = Story(), []
    for entry in entries:
        observations += [one for one in story.take(entry) if isinstance(one, Observation)]
    return observations, story


def test_the_requests_in_flight_at_the_start_are_excused_once_a_run() -> None:
    """Any interval may contain these completions, but no more than were in flight at the start."""
    unmatched = [0, 1, 2, 3, 5, 5]
    samples = [_with_unmatched(at_s + 1, count) for at_s, count in enumerate(unmatched)]
    run: list[RunEntry] = [Began(0, samples[0])]
    run += [*(Ticked({0: one}) for one in samples[1:]), Ended({0: samples[-1]})]
    *intervals, whole = shown(run)[0]
    assert [len(one.unexplained) for one in intervals] == [0, 0, 1, 1, 0]
    assert "1 request" in intervals[2].unexplained[0]
    assert "2 requests" in intervals[3].unexplained[0]
    assert "3 requests" in whole.unexplained[0]


def _after(at_s: int, traced: int, kernel: int, overwritten: int = 0) -> DiskSample:
    whole = disk_sample("sda", at_s, 0)
    read = reads(traced, issued=kernel, overwritten=overwritten)
    return DiskSample(whole.disk, at_rest(sample(at_s * S, read=read), stat(kernel)), 0, whole.anchor)


def test_a_place_that_is_found_taken_later_is_no_second_loss() -> None:
    samples = [_after(1, 0, 0), _after(2, 9, 10), _after(3, 18, 19), _after(4, 30, 31, overwritten=1)]
    run: list[RunEntry] = [Began(0, samples[0])]
    run += [*(Ticked({0: one}) for one in samples[1:]), Ended({0: samples[-1]})]
    observations, story = shown(run)
    assert [len(one.losses) for one in observations] == [1, 0, 0, 1]
    assert len(story.unexplained) == 1
    assert story.unexplained[0].startswith("sda (of dm-0): ") or story.unexplained[0].startswith("sda: ")


def test_no_interval_alarms_once_the_kernel_is_known_to_skip_programs() -> None:
    samples = [_after(1, 0, 0), _after(2, 9, 10), _after(3, 17, 19)]
    run: list[RunEntry] = [Began(0, samples[0]), Ticked({0: samples[1]}), Blinded(3 * S)]
    run += [Ticked({0: samples[2]}), Ended({0: samples[2]})]
    observations, story = shown(run)
    assert [(len(one.unexplained), len(one.explained)) for one in observations] == [(1, 0), (0, 1), (0, 1)]
    assert (story.unexplained, len(story.explained)) == ([], 1)
    assert "2 reads" in story.explained[0]
