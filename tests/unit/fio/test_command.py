from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opwatch.fio.command import FioPlan, is_fio, plan_command

FOLDER = Path("/tmp/private")
JOBS = {
    "plain.fio": b"[a]\nrw=read\n",
    "logs.fio": b"[a]\n  write_lat_log = mine\n",
    "more.fio": b"include other.fio\n",
}
read: Callable[[str], bytes | None] = JOBS.get


def plan_fio(*words: str, has_clock: bool = True) -> FioPlan:
    return plan_command(("fio", *words), FOLDER, read, has_clock=has_clock)


@pytest.mark.parametrize(("word", "expected"), [("fio", True), ("/usr/bin/fio", True), ("fio-plot", False)])
def test_fio_commands_are_recognized(word: str, expected: bool) -> None:
    assert is_fio([word, "job.fio"]) is expected
    assert not is_fio([])


def test_arguments_of_the_command_come_last_unchanged() -> None:
    made = plan_fio("plain.fio", "--runtime=5")
    assert made.argv[0] == "fio"
    assert made.argv[-2:] == ("plain.fio", "--runtime=5")
    added = made.argv[1:-2]
    assert "--output=/tmp/private/report" in added and "--output-format=normal,json+" in added
    assert {"--log_alternate_epoch=1", "--log_alternate_epoch_clock_id=1"} <= set(added)
    assert (made.report, made.is_ours, made.no_report, made.no_logs) == (FOLDER / "report", True, None, None)


@pytest.mark.parametrize("word", ["--output-format=json", "--output-f=json+", "-output-format=normal,json"])
def test_json_format_is_left_unchanged(word: str) -> None:
    made = plan_fio(word, "plain.fio")
    assert made.is_ours and made.report == FOLDER / "report"
    assert sum("output-f" in one for one in made.argv) == 1


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--output-format=terse"], "no JSON"),
        (["--output=mine.txt"], "without JSON"),
        (["--output", "mine.txt"], "word"),
        (["--minimal"], "--minimal "),
        (["--status-interval=1"], "--status-interval"),
        (["--client=host"], "--client"),
    ],
)
def test_unavailable_reports_have_a_reason(words: list[str], reason: str) -> None:
    made = plan_fio(*words, "plain.fio")
    assert made.report is None and made.no_report is not None
    assert reason in made.no_report
    assert not [word for word in made.argv if "private/report" in word]


def test_report_of_the_command_is_read_in_place() -> None:
    made = plan_fio("--output=mine.json", "--output-format=json+", "plain.fio")
    assert (made.report, made.is_ours) == (Path("mine.json"), False)


@pytest.mark.parametrize(
    ("words", "has_clock", "reason"),
    [
        (["logs.fio"], True, " write_lat_log"),
        (["more.fio"], True, "more.fio "),
        (["--write_bw_log=mine", "plain.fio"], True, " --write_bw_log"),
        (["--log_avg_msec=100", "plain.fio"], True, " --log_avg_msec"),
        (["-"], True, "standard"),
        (["--client=host"], True, "host"),
        (["plain.fio"], False, " log_alternate_epoch"),
    ],
)
def test_logs_requested_by_the_command_are_left_alone(words: list[str], has_clock: bool, reason: str) -> None:
    made = plan_fio(*words, has_clock=has_clock)
    assert made.no_logs is not None and reason in made.no_logs
    assert not [word for word in made.argv if "private/fio" in word or "alternate" in word]
