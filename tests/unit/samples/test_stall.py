"""A stalled disk is not idle while requests are in flight, and its queue depth is exact."""

from __future__ import annotations

import io
import json

import pytest

from opwatch.compare.decision import require_change_rule
from opwatch.errors import UsageError
from opwatch.rules.parse import parse_rule
from opwatch.rules.watch import RuleWatch
from opwatch.samples.entries import DiskAdded, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.observation import Observation
from opwatch.samples.presenter import RunPresenter
from opwatch.samples.sample import DiskSample
from opwatch.sinks.jsonl import build_observation_document
from opwatch.sinks.lines import TextLines
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import Reading
from tests.unit.support.sample_run import S, make_disk_sample
from tests.unit.support.samples import Op, make_sample


def _make_sample_at(
    at_s: float, *, issued_s: float | None, ended_s: float | None, kernel: int | None = None
) -> DiskSample:
    """Return a disk with one read; `kernel` is the kernel's in-flight count."""
    whole = make_disk_sample("sda", 1, 0)
    is_issued = issued_s is not None and issued_s <= at_s
    is_ended = is_issued and ended_s is not None and ended_s <= at_s
    until = ended_s if is_ended else at_s
    ns = round((until - issued_s) * S) if issued_s is not None and until is not None and is_issued else 0
    flying = is_issued and not is_ended
    read = Op(
        [ns] if is_ended else [],
        [4096] if is_ended else [],
        scalars={"issued": is_issued, "in_flight": flying, "in_flight_ns": ns},
    )
    counts = {"read": int(is_ended), "write": 0, "flush": 0, "discard": 0}
    sizes = {"read": 4096 * is_ended, "write": 0, "discard": 0}
    at_ns = round(at_s * S)
    stat = StatSample(at_ns, at_ns, counts, sizes, int(flying) if kernel is None else kernel)
    reading = Reading(make_sample(at_ns, read=read), stat, stat)
    return DiskSample(whole.disk, reading, 0, whole.anchor)


def _observe_samples(samples: list[DiskSample]) -> list[Observation]:
    story, shown = RunPresenter(), list[Observation]()
    run: list[RunEntry] = [DiskAdded(0, samples[0])]
    run += [*(IntervalEnded({0: one}) for one in samples[1:]), RunEnded({0: samples[-1]})]
    for entry in run:
        shown += [one for one in story.process_entry(entry) if isinstance(one, Observation)]
    return shown


@pytest.fixture
def stuck() -> list[Observation]:
    """A read that takes 3.5 s, issued half a second before the first interval ends."""
    return _observe_samples([_make_sample_at(at_s, issued_s=1.5, ended_s=5.0) for at_s in (1, 2, 3, 4, 5, 6)])


def test_the_queue_depth_is_the_integral_over_the_interval(stuck: list[Observation]) -> None:
    depths = [one.interval.ops["read"].queue_depth if one.interval.ops else 0.0 for one in stuck]
    assert depths == [0.5, 1.0, 1.0, 1.0, 0.0, pytest.approx(3.5 / 5)]
    assert [one.interval.ops["read"].in_flight for one in stuck[:4]] == [1, 1, 1, 0]


def test_a_stall_has_how_many_and_for_how_long(stuck: list[Observation]) -> None:
    stalls = [one.stall and (one.stall.in_flight, one.stall.least_ns) for one in stuck]
    assert stalls == [(1, S // 2), (1, 3 * S // 2), (1, 5 * S // 2), None, None, None]
    parts = [build_observation_document(one)["stall"] for one in stuck]
    assert parts[1] == {"in_flight": 1, "since_mono_ns": 3 * S // 2, "at_least_ns": 3 * S // 2}
    assert parts[3:] == [None, None, None]
    json.dumps(parts)


def test_a_disk_with_requests_in_flight_is_never_idle(stuck: list[Observation]) -> None:
    out = io.StringIO()
    lines = TextLines(out, every_s=1.0)
    for one in stuck:
        lines.write_observation(one)
    titles = [line for line in out.getvalue().splitlines() if " sda" in line and not line.startswith("=")]
    assert [", 1 in flight" in line for line in titles] == [True, True, True, False, False]
    assert [line.endswith("idle") for line in titles] == [False, False, False, False, True]
    assert "1.50s" in titles[1]


def test_requests_issued_before_the_watch_are_in_flight() -> None:
    """The tracer has no record of the request, but the kernel counts one in flight."""
    shown = _observe_samples(
        [_make_sample_at(at_s, issued_s=None, ended_s=None, kernel=1) for at_s in (1, 2, 3)]
    )
    stalls = [one.stall and (one.stall.in_flight, one.stall.least_ns) for one in shown]
    assert stalls == [(1, S), (1, 2 * S), (1, 2 * S)]
    out = io.StringIO()
    TextLines(out).write_observation(shown[0])
    TextLines(out).write_observation(shown[-1])
    assert "idle" not in out.getvalue()
    assert "no I/O" not in out.getvalue()


def test_a_request_that_ended_unseen_is_not_in_flight() -> None:
    """The tracer considers the request in flight until the tag is reused; the kernel does not."""
    shown = _observe_samples(
        [_make_sample_at(at_s, issued_s=0.5, ended_s=None, kernel=0) for at_s in (1, 2, 3)]
    )
    assert [one.stall for one in shown] == [None, None, None]
    assert [one.interval.ops for one in shown] == [{}, {}, {}]


def test_a_stall_fires_a_rule_once(stuck: list[Observation]) -> None:
    watch = RuleWatch.from_texts(["stall>1s", "stall>2s", "stall>3s"])
    fired = [[firing.rule for firing in watch.process_news(one)] for one in stuck]
    assert fired == [[], ["stall>1s"], ["stall>2s"], [], [], []]


def test_stall_rules_are_for_whole_disks_and_live_runs() -> None:
    with pytest.raises(UsageError, match=r"column 6: .*: write stall$"):
        parse_rule("read.stall>2s")
    with pytest.raises(UsageError, match="stall"):
        require_change_rule(parse_rule("stall>+5%"))
