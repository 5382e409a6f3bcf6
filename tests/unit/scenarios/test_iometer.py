"""Random reads and writes on a whole drive and on a part of it: gains compared with the drive's constants."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import UsageError
from opwatch.fields import Fields
from opwatch.ftl import profiles
from opwatch.scenarios.claims import CheckVerdict, ScenarioVerdict
from opwatch.scenarios.iometer import (
    IometerResult,
    OpGain,
    OpRate,
    find_published_gain,
    make_iometer_findings,
    predict_iops,
)
from opwatch.scenarios.scenario import load_scenario
from opwatch.scenarios.spare import infer_flash_bytes
from opwatch.sweep.levels import LevelScale, OpShare, parse_levels
from opwatch.sweep.model_load import VirtualLoad
from opwatch.sweep.outcome import KINDS, READ_FULL, WRITE_EMPTY, WRITE_FULL
from opwatch.tools.cli import main
from tests.unit.scenarios.test_saturation import DRIVE
from tests.unit.scenarios.test_untrimmed import find_problems

PROFILE = profiles.load_profile("wd-blue-1tb")
SCENARIO = load_scenario("iometer-op10")
LEVELS = parse_levels(
    "0,10%",
    LevelScale(PROFILE.drive["user_bytes"], OpShare.WHOLE, align_bytes=4096),
    PROFILE.drive["physical_bytes"],
)
LOAD = VirtualLoad(queue_depth=1)


def _make_result(gain: float | None = 1.25, foretold: float = 1.25, read: float = 1.0) -> IometerResult:
    rates = tuple(OpRate(kind, level, 7500.0, 132e3) for level in LEVELS for kind in KINDS)
    gains = {kind: OpGain(kind, read if kind.op == "read" else 1.0, 0.0, 1.0) for kind in KINDS}
    gains[WRITE_FULL] = OpGain(WRITE_FULL, gain, 0.01, foretold)
    return IometerResult(rates, tuple(gains.values()), gain is not None)


def _list_verdicts(result: IometerResult) -> list[ScenarioVerdict]:
    """Return the verdicts on reads, writes, and the time of a read."""
    return [finding.verdict for finding in make_iometer_findings(SCENARIO, result, PROFILE).findings]


def _check_model(result: IometerResult) -> CheckVerdict:
    [check] = make_iometer_findings(SCENARIO, result, PROFILE).checks
    return check.verdict


def test_published_table_implies_a_larger_gain_than_its_text() -> None:
    gain = find_published_gain(SCENARIO.published, "write")
    assert gain is not None and gain == pytest.approx(1.246, abs=0.0005)
    assert (
        "12.5 %" in load_scenario("iometer-op10").remark and "24.6 %" in load_scenario("iometer-op10").remark
    )


def test_published_gains_are_reproduced() -> None:
    assert _list_verdicts(_make_result())[:2] == [ScenarioVerdict.REPRODUCED] * 2
    assert _check_model(_make_result()) is CheckVerdict.AGREES


def test_other_gains_are_not_reproduced() -> None:
    verdicts = _list_verdicts(_make_result(1.9, 1.2, read=1.05))
    assert verdicts[:2] == [ScenarioVerdict.NOT_REPRODUCED] * 2
    assert _check_model(_make_result(1.9, 1.2)) is CheckVerdict.DIFFERS
    why = make_iometer_findings(SCENARIO, _make_result(1.9, 1.9), PROFILE).findings[1].why
    # The gain of a quarter from a tenth less use implies this much flash.
    assert " 1.34 times " in why


def test_missing_steady_state_or_interface_limit_leaves_the_verdict_open() -> None:
    verdicts = _list_verdicts(_make_result(None))
    assert verdicts[1] is ScenarioVerdict.UNTOLD
    assert _check_model(_make_result(None)) is CheckVerdict.OPEN
    limited = make_iometer_findings(SCENARIO, _make_result(1.0, 1.0), PROFILE).findings[1]
    assert limited.verdict is ScenarioVerdict.UNTOLD and "interface" in limited.why


def test_read_faster_than_flash_leaves_the_verdict_open() -> None:
    word = make_iometer_findings(SCENARIO, _make_result(), PROFILE).findings[2]
    assert word.verdict is ScenarioVerdict.UNTOLD and "without data" in word.why


def test_predicted_iops_follow_interface_and_flash_constants() -> None:
    whole, less = LEVELS
    # 307 MB/s on flash, divided by the NAND bytes per host byte.
    assert predict_iops(PROFILE, WRITE_FULL, whole, LOAD) == pytest.approx(12_950, rel=0.001)
    assert predict_iops(PROFILE, WRITE_FULL, less, LOAD) == pytest.approx(25_150, rel=0.001)
    # On a new drive with queue depth 1: the time of a command plus the time of its bytes.
    assert predict_iops(PROFILE, WRITE_EMPTY, whole, LOAD) == pytest.approx(1e9 / 32_015, rel=0.001)
    deep = replace(LOAD, queue_depth=32)
    assert predict_iops(PROFILE, READ_FULL, whole, deep) == pytest.approx(99_844, rel=0.001)


def test_profile_without_times_has_no_prediction() -> None:
    with pytest.raises(UsageError, match="command_ns"):
        predict_iops(profiles.load_profile("ideal"), WRITE_FULL, LEVELS[0], LOAD)


def test_hidden_flash_explains_the_fall() -> None:
    assert infer_flash_bytes(90, 100, None) is None
    assert infer_flash_bytes(90, 100, 1.0) is None
    flash = infer_flash_bytes(900, 1000, 1 / 1.246)
    assert flash == pytest.approx(1340, rel=0.01)


def test_small_drive_gains_as_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drive, kept = tmp_path / "small.toml", tmp_path / "kept.json"
    drive.write_text(
        DRIVE.replace("user_bytes = 1073741824", "user_bytes = 536870912").replace("1153433600", "576716800")
    )
    words = ("--scenario", "iometer-op10", "--virtual", str(drive), "-q", "-o", str(kept))
    assert main(["sweep", "run", *words, "--depth", "8"]) == 0
    shown = capsys.readouterr().out
    assert all(len(line) <= 80 for line in shown.splitlines())
    document = json.loads(kept.read_text())
    assert find_problems(document) == []
    for gain in document["gains"]:
        assert gain["gain"] == pytest.approx(gain["foretold"], rel=0.03)
        if gain["op"] == "read":
            assert gain["gain"] == pytest.approx(1.0, abs=0.03)
    [write] = [gain for gain in document["gains"] if gain["op"] == "write" and gain["is_full"]]
    assert write["gain"] > 1.5
    assert all(
        rate["cpu_ratio"] is None and "CPU" in rate["missing"]["cpu_ratio"] for rate in document["rates"]
    )
    assert main(["sweep", "show", str(kept)]) == 0
    assert capsys.readouterr().out == shown


def test_iometer_levels_of_other_sizes_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive = tmp_path / "small.toml"
    drive.write_text(
        DRIVE.replace("user_bytes = 1073741824", "user_bytes = 268435456").replace("1153433600", "288358400")
    )
    words = (
        "--scenario",
        "iometer-op10",
        "--virtual",
        str(drive),
        "-q",
        "--json",
        "--op",
        "0,20%",
        "--depth",
        "8",
    )
    assert main(["sweep", "run", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["published"] == {} and document["statements"][1]["verdict"] == "cannot be told"


def test_published_table_is_read_field_by_field() -> None:
    assert find_published_gain(Fields({}, "nothing"), "write") is None
