"""Loads named after other tools, without a drive: on models and in scenarios."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opwatch.scenarios.mixed import MixLoad
from opwatch.tools.cli import main
from opwatch.tools.commands.sweep.scenarios.arguments import parse_mix_workloads

LOADS = Path(__file__).parents[2] / "fixtures" / "good" / "loads"


def _plan_workload(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["sweep", "plan", *words, "--json"]) == 0
    plan: dict[str, str] = json.loads(capsys.readouterr().out)
    return plan["workload"]


@pytest.mark.parametrize(
    ("words", "workload"),
    [
        (["--workload", "rndwr"], "random writes of 16384 bytes, queue depth 32"),
        (["--workload", "rndrw"], "random writes of 16384 bytes, 60 % reads, queue depth 32"),
        (["--workload", "4k-100-random-30-read"], "random writes of 4096 bytes, 30 % reads, queue depth 32"),
        (
            ["--workload", "rdpct=25,seekpct=100,xfersize=8k,threads=4"],
            "random writes of 8192 bytes, 25 % reads, queue depth 4",
        ),
        (["--workload", "rndwr", "--bs", "4K", "--depth", "2"], "random writes of 4096 bytes, queue depth 2"),
        (["--workload", str(LOADS / "whole-drive.icf")], "random writes of 4096 bytes, queue depth 32"),
        (
            ["--scenario", "write-saturation", "--workload", "8k-100-random"],
            "random writes of 8192 bytes, queue depth 32",
        ),
        (
            ["--scenario", "untrimmed-cliff", "--workload", "4k-100-random"],
            "36 rounds of 10 s, random writes of 4096 bytes, through the page cache, synced after each 100",
        ),
        (
            ["--scenario", "iometer-op10", "--workload", str(LOADS / "whole-drive.icf")],
            "random reads and writes of 4096 bytes, queue depth 32",
        ),
    ],
)
def test_named_load_is_available_on_a_model(
    words: list[str], workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _plan_workload(capsys, "--virtual", "intel-545s-256", *words) == workload


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--scenario", "free-space", "--workload", "seqwr"], " 0 % "),
        (["--workload", "rndrd"], "rndrd: it only reads"),
        (["--scenario", "free-space", "--workload", "random-4k"], "'random-4k' "),
        (["--workload", "random-5k"], "'random-5k'"),
        (["--workload", str(LOADS / "mixed.vdb")], " 2 loads"),
        (["--scenario", "free-space", "--workload", "rndrw"], "60 % "),
    ],
)
def test_unsupported_model_loads_are_refused(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "run", "--virtual", "intel-545s-256", *words]) == 2
    assert reason in capsys.readouterr().err


def test_file_systems_get_all_loads_of_a_file() -> None:
    small, large = parse_mix_workloads(str(LOADS / "mixed.vdb"))
    assert small == MixLoad("small", 75, 100, 8192, 16)
    assert large.build_fio_options() == ["--rw=write", "--rwmixread=0", "--bs=131072"]
    assert MixLoad("half", 0, 50, 4096).build_fio_options()[-1] == "--percentage_random=50"
