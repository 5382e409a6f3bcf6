"""Device times of an owner with and without another owner's requests."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from opwatch.owners.cells import OwnerKey, OwnerKind
from opwatch.sinks.neighbours import build_neighbours_document, format_neighbours
from opwatch.tools import cli
from opwatch.why.neighbours import MAX_OWNERS, MIN_INTERVALS, compare_neighbours
from tests.section import DOCS
from tests.unit.compare.counted_disk import generate_entries, write_recording

from .neighbour_disks import US, draw_disk, find_effect, make_disk, make_owner


def test_added_time_is_within_its_error() -> None:
    effects = [find_effect(draw_disk(seed, added_ns=30 * US)) for seed in range(40)]
    assert all(one.is_real for one in effects)
    within = [one for one in effects if abs((one.added_ns or 0) - 30 * US) <= (one.error_ns or 0)]
    assert len(within) >= 36


@pytest.mark.parametrize("lasting", [0.0, 0.6, 0.9])
def test_correlated_noise_rarely_looks_like_an_effect(lasting: float) -> None:
    found = sum(find_effect(draw_disk(seed, lasting=lasting)).is_real for seed in range(100))
    assert found <= 10


def test_requests_without_an_owner_are_no_neighbour() -> None:
    disk = draw_disk(3, added_ns=30 * US)
    assert disk.owners
    db, other = disk.owners.values()
    disk.owners = {OwnerKey(OwnerKind.CGROUP, 1): db, OwnerKey(OwnerKind.NOBODY, 0): other}
    assert not compare_neighbours(disk).effects


def test_intervals_at_the_ends_of_bursts_are_neither_side() -> None:
    begin, inside, end = (True, 200), (True, 300), (True, 200)
    # The other owner is active in half of the first and last second of a burst.
    seconds = ([(False, 100)] * 10 + [begin, *[inside] * 8, end]) * 6
    disk = make_disk(
        [
            make_owner("db", [1000] * 120, (1000 * US * time for _, time in seconds)),
            make_owner("backup", (50 * now for now, _ in seconds), (1e9 * now for now, _ in seconds)),
        ]
    )
    effect = find_effect(disk)
    assert effect.without and effect.beside
    assert (effect.without.mean_ns, effect.beside.mean_ns) == (100 * US, 300 * US)
    assert (effect.added_ns, effect.error_ns, effect.bursts) == (200 * US, 0.0, 6)
    assert effect.in_flight == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("others", "missing"), [([5.0] * 60, "without"), ([5.0, 0.0, 0.0, 0.0, 0.0] * 40, "with")]
)
def test_neighbour_that_never_pauses_or_stays_is_refused(others: list[float], missing: str) -> None:
    count = len(others)
    disk = make_disk([make_owner("db", [10.0] * count, [1e6] * count), make_owner("backup", others, others)])
    effect = find_effect(disk)
    assert effect.added_ns is None and effect.error_ns is None
    assert effect.refusal == f"0 intervals {missing} requests of backup ({MIN_INTERVALS} needed)"


def test_owners_with_the_most_device_time_are_compared() -> None:
    owners = [make_owner(f"o{number}", [1.0] * 30, [1e6 * number] * 30) for number in range(1, 12)]
    found = compare_neighbours(make_disk(owners))
    assert found.more_owners == 11 - MAX_OWNERS
    assert {one.of for one in found.effects} == {f"o{number}" for number in range(4, 12)}


def test_lines_show_real_differences_and_doubts_in_80_columns() -> None:
    disks = [
        compare_neighbours(draw_disk(1, added_ns=30 * US)),
        compare_neighbours(draw_disk(2)),
        compare_neighbours(draw_disk(3, added_ns=30 * US, seconds=120, burst=60)),
        compare_neighbours(draw_disk(4, added_ns=30 * US, name="/system.slice/postgresql@15-main.service")),
    ]
    lines = list(format_neighbours(disks))
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "none ±" in text and "+3" in text
    assert "backup came only once" in text or "backup came only twice" in text


def test_document_follows_its_schema() -> None:
    schema: dict[str, Any] = json.loads((DOCS / "schema" / "why-neighbours.json").read_text())
    never = make_owner("always", [5.0] * 60, [1e6] * 60)
    disks = [compare_neighbours(draw_disk(1)), compare_neighbours(make_disk([never, never]))]
    document = build_neighbours_document(disks)
    validator = importlib.import_module("jsonschema").Draft202012Validator(schema)
    assert [error.message for error in validator.iter_errors(document)] == []
    [first] = [one for one in document["disks"][0]["effects"] if one["of"] == "db"]
    assert first["added_ns"] == first["beside"]["mean_ns"] - first["without"]["mean_ns"]


def test_recording_without_owners_says_how_to_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.opw"
    write_recording(path, generate_entries([{"read": {100_000: 900}}] * 60))
    assert cli.main(["why", str(path), "--neighbours"]) == 6
    assert "--by cgroup" in capsys.readouterr().err
