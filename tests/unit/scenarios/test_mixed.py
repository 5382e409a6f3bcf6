"""Mixed I/O on several sets: fio's arguments, ratios between sets, and refused places."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from opwatch.errors import UsageError
from opwatch.scenarios.claims import ScenarioVerdict
from opwatch.scenarios.mixed import (
    MemberCount,
    MixConfiguration,
    MixLoad,
    MixRate,
    make_mix_findings,
    parse_mix_loads,
    parse_mix_setup,
)
from opwatch.scenarios.scenario import load_scenario
from opwatch.sinks.sweep.scenario_document import build_experiment_document, build_mixed_fields
from opwatch.sinks.sweep.scenario_section import format_experiment
from opwatch.tools.cli import main
from tests.unit.scenarios.test_untrimmed import find_problems

SCENARIO = load_scenario("mixed-io")
LOADS = parse_mix_loads(SCENARIO.published)
COUNT = MemberCount(75, 25, 75 << 13, 25 << 13, busy_ms=500, active_ms=950)


def _make_mix_set(kind: str, iops: float, cpu: float = 0.2, **more: MemberCount | None) -> MixConfiguration:
    members: dict[str, MemberCount | None] = {"sda": COUNT, **more}
    rates = [MixRate(load, int(iops), 0, int(iops) * load.xfersize, 1.0, 5e6, cpu, members) for load in LOADS]
    return MixConfiguration(f"my {kind}", "/mnt", "md0", kind, 1 << 30, tuple(rates))


def _list_verdicts(*sets: MixConfiguration) -> list[ScenarioVerdict]:
    return [finding.verdict for finding in make_mix_findings(SCENARIO, sets).findings]


@pytest.mark.parametrize(
    ("rdpct", "seekpct", "direction"),
    [(75, 100, "randrw"), (25, 0, "rw"), (100, 0, "read"), (0, 0, "write"), (100, 100, "randread")],
)
def test_vdbench_parameters_become_fio_options(rdpct: int, seekpct: int, direction: str) -> None:
    words = MixLoad("a load", rdpct, seekpct, 8192).build_fio_options()
    assert words == [f"--rw={direction}", f"--rwmixread={rdpct}", "--bs=8192"]


def test_loads_match_the_published_loads() -> None:
    assert [(load.rdpct, load.seekpct, load.xfersize) for load in LOADS] == [
        *((75, 100, 8192), (25, 100, 8192), (75, 0, 8192), (25, 0, 8192)),
        *((100, 0, 131072), (0, 0, 131072)),
    ]
    assert parse_mix_setup(SCENARIO.setup).threads == 16


def test_sets_are_compared_like_the_published_sets() -> None:
    assert (
        _list_verdicts(_make_mix_set("md-raid1", 200), _make_mix_set("md-raid10", 400))
        == [ScenarioVerdict.REPRODUCED] * 2
    )
    assert (
        _list_verdicts(_make_mix_set("md-raid1", 200), _make_mix_set("md-raid10", 200))
        == [ScenarioVerdict.NOT_REPRODUCED] * 2
    )
    assert (
        _list_verdicts(_make_mix_set("md-raid1", 200), _make_mix_set("disk", 400))
        == [ScenarioVerdict.UNTOLD] * 2
    )


def test_rate_limited_by_the_cpu_leaves_the_verdict_open() -> None:
    sets = (_make_mix_set("md-raid1", 200), _make_mix_set("md-raid10", 200, cpu=0.95))
    assert _list_verdicts(*sets) == [ScenarioVerdict.UNTOLD] * 2
    assert "of a CPU, which is the limit" in make_mix_findings(SCENARIO, sets).findings[0].why


def test_idle_members_leave_the_verdict_open() -> None:
    idle = COUNT._replace(active_ms=400)
    sets = (_make_mix_set("md-raid1", 200), _make_mix_set("md-raid10", 200, sdb=idle))
    assert _list_verdicts(*sets) == [ScenarioVerdict.UNTOLD] * 2
    assert "busy 68 % of the time" in make_mix_findings(SCENARIO, sets).findings[0].why
    uncounted = (_make_mix_set("md-raid1", 200), _make_mix_set("md-raid10", 200, sdb=None))
    assert _list_verdicts(*uncounted) == [ScenarioVerdict.UNTOLD] * 2


def test_counts_of_a_member_are_differences() -> None:
    grown = COUNT._replace(reads=175, busy_ms=900).subtract(COUNT)
    assert grown == MemberCount(100, 0, 0, 0, 400, 0) and grown.mean_ns == 4e6
    assert COUNT.subtract(COUNT).mean_ns is None


def test_document_is_valid_and_table_fits_in_80_columns() -> None:
    sets = [_make_mix_set("md-raid1", 200, sdb=None), replace(_make_mix_set("md-raid10", 400), name="tenth")]
    document = build_experiment_document(SCENARIO, "two", "some loads", None)
    document |= build_mixed_fields(sets, make_mix_findings(SCENARIO, sets))
    assert find_problems(document) == []
    shown = list(format_experiment(document))
    assert all(len(line) <= 80 for line in shown)
    # A hundred requests for two hundred I/Os; and a disk without statistics.
    words = [line.split() for line in shown]
    assert ["8k", "random", "75r", "sda", "75", "25", "0.82", "5.00m", "95", "%", "0.50"] in words
    assert ["8k", "random", "75r", "sdb", *"------"] in words


@pytest.mark.parametrize(
    "changes",
    [{"threads": 0}, {"threads": 5000}, {"space_percent": 99}, {"space_percent": 0}, {"run_s": 0.1}],
)
def test_numbers_out_of_range_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="--set"):
        parse_mix_setup(SCENARIO.with_setup(changes).setup)


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ((), 2, "needs a folder for each configuration: --on NAME=DIR"),
        (("--virtual", "ideal"), 2, "--virtual hard-disks"),
        (("--on", "here"), 2, "write NAME=DIR"),
        (("--on", "a=/", "--on", "a=/tmp"), 2, " name a "),
        (("--on", "a=/nowhere/at/all"), 2, os.strerror(errno.ENOENT)),
        (("--on", "a=/"), 3, "root"),
        (("--on", "a=/proc"), 5, "block"),
        (("--on", "a=/", "--depth", "3"), 2, "simulated"),
    ],
)
def test_load_that_would_disturb_others_is_refused(
    words: tuple[str, ...], status: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "run", "--scenario", "mixed-io", *words]) == status
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("scenario", ["iometer-op10", "write-saturation"])
def test_other_scenarios_accept_no_folder(
    scenario: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--scenario", scenario, "--virtual", "intel-545s-256", "--on", f"a={tmp_path}")
    assert main(["sweep", "run", *words]) == 2
    assert "--on" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
