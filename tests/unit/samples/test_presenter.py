"""Output of a run: the same from entries and from their bytes; entries that do not fit are refused."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opwatch.errors import BadInput
from opwatch.samples.entries import DiskAdded, DiskRemoved, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.observation import Event, Leaving, Observation, Sink
from opwatch.samples.presenter import MAX_PAST, RunPresenter
from opwatch.samples.source import present_run
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.trace.contexts import BLIND_CONTEXT
from tests.unit.support.sample_run import S, get_wall_time, make_disk_sample, make_sample_run
from tests.unit.support.shown_watch import format_from_file


class PreparedSource:
    """A source of prepared entries."""

    def __init__(self, entries: list[RunEntry]) -> None:
        self._entries = entries

    def iter_entries(self) -> Iterator[RunEntry]:
        return iter(self._entries)


def show_entries(entries: list[RunEntry], *, plain: bool = False, said: list[str] | None = None) -> str:
    out = io.StringIO()
    sink: Sink = TextLines(out) if plain else JsonLines(out)
    present_run(PreparedSource(entries), RunPresenter(), sink, (said if said is not None else []).append)
    return out.getvalue()


def test_a_run_shows_the_same_from_a_file() -> None:
    run, said = make_sample_run(), list[str]()
    for plain in (False, True):
        assert format_from_file(run, plain=plain) == show_entries(run, plain=plain, said=said)
    assert [words.split()[0] for words in said[:3]] == ["sdb", "sdc", "sdy"]
    assert "3 reads" in said[1]


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(3, 9), st.integers(0, 2**20))
def test_any_run_shows_the_same_from_a_file(ticks: int, seed: int) -> None:
    run = make_sample_run(ticks=ticks, seed=seed)
    for plain in (False, True):
        assert format_from_file(run, plain=plain) == show_entries(run, plain=plain)


def test_rows_of_a_run_are_shown_in_order() -> None:
    documents = [json.loads(line) for line in show_entries(make_sample_run()).splitlines()]
    rows = [
        (document["type"], document["device"], document["ops"]["read"]["count"])
        for document in documents
        if document["type"] != "event"
    ]
    assert rows == [
        *(("interval", "nvme0n1", 97), ("interval", "sdb", 0)),
        *(("interval", "nvme0n1", 97), ("interval", "sdb", 5), ("interval", "sdb", 3)),
        *(("interval", "nvme0n1", 97), ("interval", "sdc", 7)),
        *(("interval", "nvme0n1", 97), ("interval", "sdc", 5)),
        *(("interval", "nvme0n1", 609), ("interval", "sdc", 30)),
        *(("summary", "sdb", 8), ("summary", "nvme0n1", 997), ("summary", "sdc", 42)),
    ]
    assert [document["event"] for document in documents if document["type"] == "event"] == [
        "left",
        "came",
        "not_watched",
    ]
    last, first = documents[-2], documents[0]
    assert first["waf"]["waf"] is None and "once" in first["waf"]["reason"]
    assert last["waf"]["waf"] is not None
    assert (last["discards"]["bios"], last["discards"]["unseen"], last["discards"]["lost"]) == (31, 1, 10)
    assert last["discards"]["senders"][0]["where"] == "ext4 /srv"
    assert last["blind"].startswith(BLIND_CONTEXT)
    assert documents[-1]["leaving"]["why"] == "gone"


def test_summary_follows_the_last_interval_directly_without_a_rest() -> None:
    samples = {0: make_disk_sample("sda", 3, 9)}
    news = {
        with_rest: [
            observation.final
            for entry in (DiskAdded(0, make_disk_sample("sda", 1, 0)), RunEnded(samples, with_rest=with_rest))
            for observation in story.process_entry(entry)
            if isinstance(observation, Observation)
        ]
        for with_rest, story in ((True, RunPresenter()), (False, RunPresenter()))
    }
    assert news == {True: [False, True], False: [True]}


def test_idle_remainder_is_not_an_interval() -> None:
    story = RunPresenter()
    story.process_entry(DiskAdded(0, make_disk_sample("sda", 1, 4)))
    news = story.process_entry(RunEnded({0: make_disk_sample("sda", 3, 4)}, with_rest=True))
    assert [observation.final for observation in news if isinstance(observation, Observation)] == [True]


def test_oldest_of_many_removed_disks_are_shown_early() -> None:
    story, finals = RunPresenter(), 0
    leaving = Leaving(get_wall_time(2), 2 * S, "gone", "a doubt")
    first, last = make_disk_sample("sda", 1, 0), make_disk_sample("sda", 2, 1)
    for place in range(MAX_PAST + 3):
        story.process_entry(DiskAdded(place, first))
        news = story.process_entry(DiskRemoved(place, last, leaving, "sda has gone"))
        assert isinstance(news[0], Event)
        finals += sum(isinstance(one, Observation) and one.final for one in news)
    assert finals == 3
    assert len(story.process_entry(RunEnded({}))) == MAX_PAST
    assert story.unexplained.count("sda: a doubt") == MAX_PAST + 3


@pytest.mark.parametrize(
    "entry",
    [
        DiskAdded(0, make_disk_sample("sda", 1, 0)),
        IntervalEnded({7: make_disk_sample("sda", 1, 0)}),
        DiskRemoved(7, make_disk_sample("sda", 1, 0), Leaving(get_wall_time(1), S, "gone"), ""),
        RunEnded({7: make_disk_sample("sda", 1, 0)}),
        RunEnded({}, leaving={7: Leaving(get_wall_time(1), S, "gone")}),
    ],
)
def test_entries_that_do_not_follow_are_refused(entry: RunEntry) -> None:
    story = RunPresenter()
    story.process_entry(DiskAdded(0, make_disk_sample("sda", 1, 0)))
    with pytest.raises(BadInput, match="place"):
        story.process_entry(entry)
