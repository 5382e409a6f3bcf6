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
from opwatch.scenarios.claims import ScenarioVerdict
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
    return parse_untrimmed_setup(scenario.setup, scenario.io_bytes, scenario.queue_depth, 1)


def find_problems(answer: dict[str, Any]) -> list[str]:
    """Return the schema violations of an experiment's document."""
    validator = importlib.import_module("jsonschema").Draft202012Validator(
        forbid_extra_fields(json.loads(SCHEMA.read_text()))
    )
    return [f"{list(error.path)}: {error.message}" for error in validator.iter_errors(answer)]


def test_published_result_of_the_untrimmed_drive_is_reproduced() -> None:
    setup = _make_setup()
    runs = run_untrimmed(setup, MODEL)
    verdicts = [statement.verdict for statement in make_findings(SCENARIO, runs, setup, PROFILE)]
    assert verdicts[:3] == [ScenarioVerdict.REPRODUCED] * 3
    # The profile cannot tell whether the flash or the cache ends at 5 GB.
    assert verdicts[3] is ScenarioVerdict.UNTOLD
    untrimmed, shrunk, trimmed = runs
    assert untrimmed.free_bytes == pytest.approx(116e9, rel=0.01)
    assert untrimmed.stale_bytes == pytest.approx(111e9, rel=0.01)
    assert trimmed.free_bytes == untrimmed.free_bytes and trimmed.stale_bytes == 0
    assert shrunk.cliff_bytes is None and trimmed.cliff_bytes is None


@pytest.mark.parametrize("name", ["intel-545s-256", "intel-520-240", "wd-blue-1tb"])
def test_cliff_is_at_the_predicted_place_in_any_layout(name: str) -> None:
    model = make_model(profiles.load_profile(name), 4096)
    setup = _make_setup(rounds=100, round_s=10)
    for run in run_layouts(setup, model, range(2, 6)):
        assert run.error_ratio is not None and abs(run.error_ratio) < NEAR_RATIO / 2


def test_trimmed_space_lasts_as_long_as_predicted() -> None:
    *_, trimmed = run_untrimmed(_make_setup(rounds=100), MODEL)
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
    words = make_findings(SCENARIO, run_untrimmed(setup, MODEL), setup, PROFILE)
    assert words[0].verdict is words[2].verdict is ScenarioVerdict.UNTOLD
    assert "rounds" in words[0].why


def test_drive_that_relocates_while_idle_has_no_prediction() -> None:
    setup = _make_setup()
    runs = run_untrimmed(setup, MODEL)
    busy = [replace(runs[0], idle_bytes=0.1 * runs[0].foretold.room_bytes), *runs[1:]]
    word = make_findings(SCENARIO, busy, setup, PROFILE)[2]
    assert word.verdict is ScenarioVerdict.UNTOLD and "idle" in word.why


def test_untimed_or_short_device_runs_have_no_speed() -> None:
    runs = run_untrimmed(_make_setup(), MODEL)
    assert make_device_findings(SCENARIO, runs, is_timed=True)[0].verdict is ScenarioVerdict.REPRODUCED
    at_once = make_device_findings(SCENARIO, runs, is_timed=False)[0]
    assert at_once.verdict is ScenarioVerdict.UNTOLD and "--timing" in at_once.why
    short = [replace(run, rounds=tuple(one._replace(seconds=0.1) for one in run.rounds)) for run in runs]
    word = make_device_findings(SCENARIO, short, is_timed=True)[0]
    assert word.verdict is ScenarioVerdict.UNTOLD and "short" in word.why


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
        (("--virtual", "intel-545s-256", "--op", "7%"), "levels"),
        ((), "add --virtual intel-545s-256"),
    ],
)
def test_impossible_options_are_refused(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "run", "--scenario", "untrimmed-cliff", *words]) == 2
    assert why in capsys.readouterr().err
