"""Which minutes of a long recording are read, and that reading them equals reading all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.owners.cells import OwnerGrouping
from opwatch.owners.sample import OwnerSample
from opwatch.recording.reading.minutes import MinuteStart, MinuteStarts
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.entries import DiskAdded, IntervalEnded, RunEnded, RunEntry
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.tools import cli
from opwatch.tools.runs import explaining
from opwatch.why.episodes import Episode, find_episodes
from opwatch.why.minutes import choose_minutes
from opwatch.why.witnessed import WitnessedDisk, WitnessedRun
from tests.unit.compare.counted_disk import CountedDisk, S, generate_entries, write_recording
from tests.unit.why.test_command import FLUSHED, USUAL

MINUTES = 40


def count_minutes(means_ns: list[int], per_minute: int = 1000) -> list[MinuteStart]:
    """Return the counters at the start of each minute, for these mean latencies."""
    starts, total = [MinuteStart(1, 0, 0, 0, 0)], 0
    for block, mean_ns in enumerate(means_ns, 1):
        total += per_minute * mean_ns
        starts.append(MinuteStart(block + 1, 60 * block * S, block * per_minute, total, 0))
    return starts


def make_starts(*disks: list[int]) -> MinuteStarts:
    blocks = tuple((number + 1, 60 * number * S) for number in range(MINUTES))
    counts = {(place, "read"): count_minutes(means) for place, means in enumerate(disks)}
    return MinuteStarts(blocks, counts)


def make_means(slow: dict[int, int]) -> list[int]:
    """Return mean latencies of minutes, with those of some blocks."""
    return [slow.get(block, 100_000 + 500 * (block % 3)) for block in range(1, MINUTES + 1)]


def make_disks(count: int, origin: str | None = None) -> dict[int, WatchedDisk]:
    names = [f"sd{chr(97 + place)}" for place in range(count)]
    return {place: WatchedDisk(name, origin or name, "requests") for place, name in enumerate(names)}


def list_chosen(places: dict[int, frozenset[int]], place: int) -> set[int]:
    return {block for block, chosen in places.items() if place in chosen}


def test_minutes_that_stand_out_are_chosen_with_neighbours_and_usual_ones() -> None:
    starts = make_starts(make_means({17: 150_000, 30: 400_000}), make_means({}))
    choice = choose_minutes(starts, make_disks(2), 24)
    first, second = (list_chosen(choice.places, place) for place in (0, 1))
    assert {16, 17, 18, 29, 30, 31} <= first
    assert (len(first), second) == (24, set())
    assert (choice.standing_out, choice.minutes, choice.quiet) == (2, MINUTES, (1,))


def test_equal_disks_get_slow_and_usual_minutes_each() -> None:
    bursts = dict.fromkeys(range(4, MINUTES, 6), 160_000)
    choice = choose_minutes(make_starts(*[make_means(bursts)] * 6), make_disks(6), 60)
    for place in range(6):
        chosen = list_chosen(choice.places, place)
        assert (len(chosen & set(bursts)), len(chosen)) == (5, 10)
    assert choice.left_out == choice.quiet == ()


def test_disks_with_most_excess_time_are_read_when_minutes_are_few() -> None:
    disks = [make_means({10: 100_000 + slower, 20: 100_000 + slower}) for slower in (30_000, 60_000, 10_000)]
    choice = choose_minutes(make_starts(*disks), make_disks(3), 25)
    assert [len(list_chosen(choice.places, place)) for place in range(3)] == [11, 13, 0]
    assert (choice.left_out, choice.quiet) == ((2,), ())
    assert choice.left_out_share == pytest.approx(0.1, abs=0.01)


def test_half_of_the_minutes_go_to_the_slow_disks_among_many_with_a_varying_rate() -> None:
    slow = dict.fromkeys(range(4, MINUTES, 6), 400_000)
    starts = make_starts(*[make_means(slow)] * 2, *[make_means({})] * 8)
    for place in range(2, 10):
        rows = starts.counts[place, "read"]
        rows[20:] = [row._replace(mono_ns=row.mono_ns + 60 * S) for row in rows[20:]]
    choice = choose_minutes(starts, make_disks(10), 100)
    counts = [len(list_chosen(choice.places, place)) for place in range(10)]
    assert (counts, len(choice.left_out)) == ([25, 25, *[10] * 5, 0, 0, 0], 3)


def test_excess_time_ranks_above_the_ratio_of_means() -> None:
    starts = make_starts(make_means({10: 150_000}), make_means({10: 400_000}))
    starts.counts[1, "read"] = count_minutes(make_means({10: 400_000}), per_minute=50)
    choice = choose_minutes(starts, make_disks(2), 12)
    assert choice.left_out == (1,)


def test_disks_get_more_minutes_when_a_minute_has_few_samples() -> None:
    """With intervals of 2 s, 500 minutes are read, and ten have 300 samples only."""
    disks = [make_means({10: 400_000, 20: 400_000})] * 30
    choice = choose_minutes(make_starts(*disks), make_disks(30), 500)
    counts = [len(list_chosen(choice.places, place)) for place in range(30)]
    assert (counts, len(choice.left_out)) == ([20] * 25 + [0] * 5, 5)


def test_usual_minutes_are_read_when_none_stands_out() -> None:
    choice = choose_minutes(make_starts(make_means({}), make_means({})), make_disks(2), 40)
    assert [len(list_chosen(choice.places, place)) for place in range(2)] == [20, 20]


def test_all_minutes_are_chosen_when_there_are_few() -> None:
    choice = choose_minutes(make_starts(make_means({5: 900_000})), make_disks(1), MINUTES)
    assert list_chosen(choice.places, 0) == set(range(1, MINUTES + 1))


def test_number_of_minutes_is_limited_when_all_of_an_hour_stands_out() -> None:
    starts = make_starts(make_means(dict.fromkeys(range(21, 33), 900_000)))
    choice = choose_minutes(starts, make_disks(1), 12)
    chosen = list_chosen(choice.places, 0)
    slow = chosen & set(range(21, 33))
    assert len(chosen) <= 14
    assert 1 <= len(slow) <= 6
    assert choice.standing_out == 12


def test_minutes_that_stand_out_are_chosen_from_a_few() -> None:
    starts = MinuteStarts(
        tuple((number + 1, 60 * number * S) for number in range(9)),
        {
            (0, "read"): count_minutes(
                [100_000, 101_000, 100_500, 100_000, 300_000, 100_000, 100_500, 100_000]
            )
        },
    )
    assert 5 in choose_minutes(starts, make_disks(1), 6).places


def test_members_of_an_array_are_read_in_the_same_minutes() -> None:
    starts = make_starts(make_means({17: 900_000}), make_means({}))
    choice = choose_minutes(starts, make_disks(2, "md0"), 20)
    assert list_chosen(choice.places, 0) == list_chosen(choice.places, 1) >= {16, 17, 18}


def test_only_minutes_of_the_selected_part_are_chosen() -> None:
    starts = make_starts(make_means({17: 900_000}))
    choice = choose_minutes(starts, make_disks(1), 10, 60 * 19 * S, 60 * 29 * S)
    assert set(choice.places) <= set(range(20, 31))


def test_episode_ends_where_a_part_was_left_out() -> None:
    flags = [True, True, True, False, True]
    assert find_episodes(flags) == [Episode(0, 5)]
    assert find_episodes(flags, seams=[2]) == [Episode(0, 2), Episode(2, 5)]


def generate_disks(seconds: int) -> Iterator[RunEntry]:
    """Yield a run of three disks, with owners."""
    disks = [CountedDisk(name) for name in ("sda", "sdb", "sdc")]
    nobody = OwnerSample(OwnerGrouping.CGROUP, ())

    def take_samples(second: int) -> dict[int, DiskSample]:
        samples = {place: disk.make_sample(second) for place, disk in enumerate(disks)}
        return {place: replace(one, anchor=samples[0].anchor) for place, one in samples.items()}

    for place, sample in take_samples(0).items():
        yield DiskAdded(place, sample, owners=nobody)
    for second in range(1, seconds + 1):
        for place, disk in enumerate(disks):
            disk.add_second({"read": {100_000 + 7_000 * place: 10 + second % 5}})
        yield IntervalEnded(take_samples(second), owners=dict.fromkeys(range(3), nobody))
    yield RunEnded(take_samples(seconds), owners=dict.fromkeys(range(3), nobody))


def list_samples(entries: Iterator[RunEntry], place: int) -> list[DiskSample]:
    return [
        entry.samples[place]
        for entry in entries
        if isinstance(entry, IntervalEnded) and place in entry.samples
    ]


def test_chosen_minutes_have_the_samples_of_a_whole_reading(tmp_path: Path) -> None:
    write_recording(tmp_path / "run.opw", generate_disks(300))
    with closing(RecordedRun(tmp_path / "run.opw")) as run:
        blocks = [number for number, _ in run.read_minute_starts().blocks]
        assert [disk.device for _, disk in sorted(run.list_disks().items())] == ["sda", "sdb", "sdc"]
        whole = {place: list_samples(run.iter_entries(), place) for place in range(3)}
        chosen = {blocks[2]: frozenset({1}), blocks[3]: frozenset({0, 1})}
        parts = {place: list_samples(run.iter_entries(0, None, chosen), place) for place in range(3)}
    rare = [len(parts[2]), len(parts[2]) + 60, len(parts[2]) + 120]
    assert [len(parts[place]) for place in (2, 0, 1)] == rare
    assert all(one in whole[place] for place in range(3) for one in parts[place])


def test_bursts_of_a_long_recording_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explaining, "_MAX_SAMPLES", 2400)
    slow = {600 * burst + 200 + 17 * burst + at for burst in range(6) for at in range(4)}
    path = tmp_path / "run.opw"
    write_recording(path, generate_entries(FLUSHED if at in slow else USUAL for at in range(3600)))
    assert cli.main(["why", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (found,) = document["slow"]
    assert (len(found["episodes"]), [cause["names"] for cause in found["causes"]]) == (6, [["flushes"]])
    assert found["seconds"] == pytest.approx(24, abs=1)
    assert any("minutes per disk were examined" in note for note in document["notes"])


def generate_slow_disks(slow: dict[str, set[int]], seconds: int) -> Iterator[RunEntry]:
    """Yield a run of disks, each with reads and flushes that are slow in some seconds."""
    disks = [CountedDisk(name) for name in slow]

    def take_samples(second: int) -> dict[int, DiskSample]:
        return {place: disk.make_sample(second) for place, disk in enumerate(disks)}

    for place, sample in take_samples(0).items():
        yield DiskAdded(place, sample)
    for second in range(1, seconds + 1):
        for disk in disks:
            disk.add_second(FLUSHED if second in slow[disk.disk.device] else USUAL)
        yield IntervalEnded(take_samples(second))
    yield RunEnded(take_samples(seconds))


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return half an hour of four disks, two of them with six bursts."""
    path = tmp_path_factory.mktemp("minutes") / "run.opw"
    bursts = {300 * burst + 100 + 17 * burst + at for burst in range(6) for at in range(4)}
    later = {second + 31 for second in bursts}
    write_recording(
        path, generate_slow_disks({"sda": set(), "sdb": bursts, "sdc": set(), "sdd": later}, 1800)
    )
    return path


def ask(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    status = cli.main(["why", str(path), "--json", *options])
    return status, json.loads(capsys.readouterr().out or "{}")


def test_causes_of_the_slow_disks_are_found_and_others_are_named(
    long_recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explaining, "_MAX_SAMPLES", 1200)
    status, document = ask(capsys, long_recording)
    found = {one["device"]: [cause["names"] for cause in one["causes"]] for one in document["slow"]}
    assert (status, found) == (0, {"sdb": [["flushes"]], "sdd": [["flushes"]]})
    assert document["examined"] == ["sdb", "sdd"]
    assert ["sda, sdc" in line and "--dev" in line for line in document["not_examined"]] == [True]


@pytest.mark.parametrize("most", [1200, 15_000])
def test_named_disk_has_all_samples(
    long_recording: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(explaining, "_MAX_SAMPLES", most)
    status, document = ask(capsys, long_recording, "--dev", "/dev/sdd")
    (slow,) = document["slow"]
    assert (status, slow["device"], document["examined"]) == (0, "sdd", ["sdd"])
    assert (len(slow["episodes"]), document["not_examined"]) == (6 if most > 1800 else 5, [])
    assert ask(capsys, long_recording, "--dev", "sda")[0] == 6
    assert ask(capsys, long_recording, "--dev", "sdx")[0] == 2


@pytest.mark.parametrize(
    ("devices", "labels"),
    [
        (["/dev/sda"], {"sda (of md0)", "sdb (of md0)"}),
        (["md0"], {"sda (of md0)", "sdb (of md0)"}),
        (["sdc", "sda"], {"sda (of md0)", "sdb (of md0)", "sdc"}),
        ([], {"sda (of md0)", "sdb (of md0)", "sdc"}),
    ],
)
def test_named_disk_is_compared_with_the_members_of_its_array(devices: list[str], labels: set[str]) -> None:
    disks = [("sda (of md0)", "sda", "md0"), ("sdb (of md0)", "sdb", "md0"), ("sdc", "sdc", "sdc")]
    run = WitnessedRun(disks={disk[0]: WitnessedDisk(*disk) for disk in disks})
    explaining.select_disks(run, devices, "run.opw")
    assert (set(run.disks), run.is_partial) == (labels, len(labels) < len(disks))
