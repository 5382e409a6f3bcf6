"""The untrimmed cliff: predicted from addresses and flash size, and found by the drive's relocated bytes."""

from __future__ import annotations

import importlib
import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opwatch.ftl import profiles
from opwatch.scenarios.claims import CheckVerdict, ScenarioVerdict
from opwatch.scenarios.scenario import load_scenario
from opwatch.scenarios.untrimmed import (
    RelocationSample,
    UntrimmedSetup,
    estimate_relocation_start,
    make_fillings,
    parse_untrimmed_setup,
    predict_cliff,
    run_layouts,
    run_untrimmed,
)
from opwatch.scenarios.untrimmed_findings import NEAR_RATIO, make_device_findings, make_findings
from opwatch.sweep.virtual import make_model
from opwatch.tools.cli import main
from tests.unit.sinks.test_schema import forbid_extra_fields

SCHEMA = Path(__file__).parents[3] / "docs" / "schema" / "sweep-scenario.json"
PROFILE = profiles.load_profile("intel-545s-256")
SCENARIO = load_scenario("untrimmed-cliff")
MODEL = make_model(PROFILE, 4096)


def _make_setup(**changes: float) -> UntrimmedSetup:
    scenario = SCENARIO.with_setup(changes)
    depth = scenario.queue_depth if scenario.setup.table["fsync_every"] else 16
    return parse_untrimmed_setup(scenario.setup, scenario.io_bytes, depth, 1)


def find_problems(answer: dict[str, Any]) -> list[str]:
    """Return the schema violations of an experiment's document."""
    validator = importlib.import_module("jsonschema").Draft202012Validator(
        forbid_extra_fields(json.loads(SCHEMA.read_text()))
    )
    return [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(answer)]


# Direct I/O with a queue, as much as the drive can take: the rounds reach the cliff.
DIRECT: dict[str, float] = {"fsync_every": 0, "round_s": 5}


def test_sizes_are_those_of_the_author() -> None:
    """140 GiB of 256 GB are files; he prints the rest as 100 and 50 GB."""
    untrimmed, shrunk, trimmed = run_untrimmed(_make_setup(rounds=1), MODEL)
    assert untrimmed.free_bytes == pytest.approx(105.7e9, rel=0.001)
    assert shrunk.free_bytes == pytest.approx(49.4e9, rel=0.001)
    assert untrimmed.stale_bytes == pytest.approx(100.7e9, rel=0.001)
    assert trimmed.free_bytes == untrimmed.free_bytes and trimmed.stale_bytes == 0


def test_full_cache_slows_down_both_runs_so_it_is_not_what_the_author_saw() -> None:
    setup = _make_setup()
    assert (setup.round_s, setup.queue_depth, setup.io_bytes, setup.fsync_every) == (10, 1, 16384, 100)
    runs = run_untrimmed(setup, MODEL)
    assert all(run.cliff_bytes is None for run in runs)
    fall, rest, place = make_findings(SCENARIO, runs, setup, PROFILE).findings
    assert fall.verdict is ScenarioVerdict.UNTOLD and "cache" in fall.why
    assert rest.verdict is ScenarioVerdict.NOT_REPRODUCED and "alike" in rest.why
    assert place.verdict is ScenarioVerdict.UNTOLD


def test_untrimmed_drive_without_room_collapses_and_the_shrunk_one_does_not() -> None:
    setup = _make_setup(**DIRECT)
    runs = run_untrimmed(setup, MODEL)
    judgement = make_findings(SCENARIO, runs, setup, PROFILE)
    assert [one.verdict for one in judgement.findings] == [
        ScenarioVerdict.REPRODUCED,
        ScenarioVerdict.REPRODUCED,
        # The profile cannot tell whether the flash or the cache ends at 5 GB.
        ScenarioVerdict.UNTOLD,
    ]
    assert [one.verdict for one in judgement.checks] == [CheckVerdict.AGREES]
    _, shrunk, trimmed = runs
    assert shrunk.cliff_bytes is None and trimmed.cliff_bytes is None


@pytest.mark.parametrize("name", ["intel-545s-256", "intel-520-240", "wd-blue-1tb"])
def test_cliff_is_at_the_predicted_place_in_any_layout(name: str) -> None:
    model = make_model(profiles.load_profile(name), 4096)
    setup = _make_setup(rounds=100, round_s=10, fsync_every=0)
    for run in run_layouts(setup, model, range(2, 6)):
        assert run.error_ratio is not None and abs(run.error_ratio) < NEAR_RATIO / 2


def test_trimmed_space_lasts_as_long_as_predicted() -> None:
    *_, trimmed = run_untrimmed(_make_setup(rounds=100, **DIRECT), MODEL)
    assert trimmed.error_ratio is not None and abs(trimmed.error_ratio) < NEAR_RATIO / 2


def test_seed_determines_the_layout() -> None:
    first, second = (make_fillings(replace(_make_setup(), seed=seed), MODEL)[0] for seed in (2, 3))
    assert first.files != second.files
    assert first == make_fillings(replace(_make_setup(), seed=2), MODEL)[0]
    assert first.files_bytes == pytest.approx(second.files_bytes, rel=1e-3)
    zones = sorted((*first.files, *first.removed))
    assert all(one.start_bytes + one.len_bytes == two.start_bytes for one, two in itertools.pairwise(zones))


def test_drive_without_a_cache_has_room_for_unwritten_bytes() -> None:
    model = make_model(profiles.load_profile("intel-520-240"), 4096)
    whole = make_fillings(_make_setup(), model)[0]
    foretold = predict_cliff(whole, model)
    assert foretold.cache_bytes is None
    # 267 GB of flash minus 240 GB, plus 5 GB that were never written.
    assert foretold.cliff_bytes == foretold.room_bytes == pytest.approx(31.9e9, rel=0.01)


def test_too_few_rounds_leave_the_verdict_open() -> None:
    setup = _make_setup(rounds=2)
    judgement = make_findings(SCENARIO, run_untrimmed(setup, MODEL), setup, PROFILE)
    assert judgement.findings[0].verdict is ScenarioVerdict.UNTOLD
    assert judgement.checks[0].verdict is CheckVerdict.OPEN
    assert "more or longer rounds" in judgement.findings[0].why


def test_drive_that_relocates_while_idle_has_no_prediction() -> None:
    setup = _make_setup(**DIRECT)
    runs = run_untrimmed(setup, MODEL)
    busy = [replace(runs[0], idle_bytes=0.1 * runs[0].foretold.room_bytes), *runs[1:]]
    [check] = make_findings(SCENARIO, busy, setup, PROFILE).checks
    assert check.verdict is CheckVerdict.OPEN and "while idle" in check.why


def test_untimed_or_short_device_runs_have_no_speed() -> None:
    runs = run_untrimmed(_make_setup(**DIRECT), MODEL)
    assert (
        make_device_findings(SCENARIO, runs, is_timed=True).findings[0].verdict is ScenarioVerdict.REPRODUCED
    )
    at_once = make_device_findings(SCENARIO, runs, is_timed=False).findings[0]
    assert at_once.verdict is ScenarioVerdict.UNTOLD and "--timing real" in at_once.why
    short = [replace(run, rounds=tuple(one._replace(seconds=0.1) for one in run.rounds)) for run in runs]
    word = make_device_findings(SCENARIO, short, is_timed=True).findings[0]
    assert word.verdict is ScenarioVerdict.UNTOLD and "too short" in word.why


def test_start_of_relocation_is_between_two_readings() -> None:
    # From 140 on, three bytes are relocated per written byte.
    assert estimate_relocation_start(
        RelocationSample(100, 7), RelocationSample(150, 37), RelocationSample(170, 97)
    ) == pytest.approx(140)
    # Relocation started slowly, but not before the last reading of zero.
    assert (
        estimate_relocation_start(
            RelocationSample(100, 0), RelocationSample(150, 90), RelocationSample(250, 190)
        )
        == 100
    )
    assert (
        estimate_relocation_start(
            RelocationSample(100, 0), RelocationSample(150, 30), RelocationSample(150, 30)
        )
        is None
    )


def test_command_writes_a_valid_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.json"
    words = ["--scenario", "untrimmed-cliff", "--virtual", "intel-545s-256", "-o", str(kept)]
    assert (
        main(["sweep", "run", *words, "--seed", "7", "--set", "files_bytes=120GB", "--set", "round_s=4s"])
        == 0
    )
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    document = json.loads(kept.read_text())
    assert find_problems(document) == []
    assert document["runs"][0]["stale_bytes"] == pytest.approx(131e9, rel=0.01)
    assert main(["sweep", "show", str(kept)]) == 0
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--virtual", "ideal"), "more than ideal shows"),
        (("--virtual", "intel-545s-256", "--set", "files_bytes=250GB"), "copies"),
        (("--virtual", "intel-545s-256", "--set", "speed=1"), "files_bytes"),
        (("--virtual", "intel-545s-256", "--set", "rounds"), "write KEY=VALUE"),
        (("--virtual", "intel-545s-256", "--set", "rounds=many"), "whole"),
        (("--virtual", "intel-545s-256", "--set", "rounds=0"), "1 to"),
        (("--virtual", "intel-545s-256", "--set", "filesystem_bytes=1TB"), "more than"),
        (("--virtual", "intel-545s-256", "--op", "7%"), "has levels"),
        (("--virtual", "intel-545s-256", "--depth", "16"), "--set fsync_every=0"),
        ((), "add --virtual intel-545s-256"),
    ],
)
def test_impossible_options_are_refused(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "run", "--scenario", "untrimmed-cliff", *words]) == 2
    assert why in capsys.readouterr().err
