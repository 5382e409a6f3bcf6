"""`opwatch compare` from the command line."""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from opwatch.compare.amplification import NOT_READ
from opwatch.compare.cpu import CPU_NOT_RECORDED, NO_COMMAND, WHOLE_RUN
from opwatch.cpu import CpuTimes
from opwatch.recording.schema import COMMAND_CPU
from opwatch.samples.entries import RunEntry
from opwatch.sinks.markdown_text import escaped, escaped_cell
from opwatch.tools.cli import main
from tests.unit.compare.counted_disk import Second, generate_entries, write_recording
from tests.unit.support.recordings import record_run, update_checksums
from tests.unit.support.runs import GeneratedRun

Shown = Callable[..., tuple[int, str, str]]
FIXTURES = Path(__file__).parents[2] / "fixtures"


def make_seconds(slow_ns: int) -> list[Second]:
    return [
        {"read": {90_000: 3900 - 7 * (at % 5), slow_ns: 100 + 7 * (at * 3 % 5)}, "discard": {5_000_000: 3}}
        for at in range(40)
    ]


def make_cpu_times(ticks: int) -> list[CpuTimes]:
    """Return CPU times with about this many ticks per second for users, and a fifth of that for the
    system."""
    times = [CpuTimes(4, 1000, 200, 10, 0)]
    for at in range(40):
        before = times[-1]
        user, system = before.user + ticks - 3 + 3 * at % 7, before.system + ticks // 5
        times.append(CpuTimes(4, user, system, 10, 0))
    return times


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recordings")
    write_recording(made / "a.opw", generate_entries(make_seconds(2_000_000)))
    write_recording(made / "b.opw", generate_entries(make_seconds(2_300_000), "sda"))
    write_recording(made / "a|b*<x>.opw", generate_entries(make_seconds(2_000_000)))
    write_recording(made / "light.opw", generate_entries(make_seconds(2_000_000), cpus=make_cpu_times(50)))
    write_recording(made / "heavy.opw", generate_entries(make_seconds(2_000_000), cpus=make_cpu_times(60)))
    write_recording(made / "short.opw", generate_entries(make_seconds(2_000_000)[:5]))
    write_recording(made / "idle.opw", generate_entries([{}] * 5))
    return made


@pytest.fixture
def compare(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    monkeypatch.chdir(folder)

    def run_compare(*words: str) -> tuple[int, str, str]:
        try:
            status = main(["compare", *words])
        except SystemExit as end:
            status = int(str(end.code))
        out, err = capsys.readouterr()
        return status, out, err

    return run_compare


def test_text_output_marks_differences(compare: Shown) -> None:
    status, out, err = compare("a.opw", "b.opw", "a.opw")
    assert (status, err) == (0, "")
    assert all(len(line) <= 80 for line in out.splitlines())
    tables = out.split("\n\n")
    assert [table.split()[:3] for table in tables[1:3]] == [["A", "B", "B/A"], ["A", "C", "C/A"]]
    p99 = [line.split() for table in tables[1:3] for line in table.splitlines() if " p99 " in line]
    assert p99[0][-1] == "HIGHER"
    # The rows of reads come first, then those of the few discards.
    assert p99[2][-2:] == ["no", "difference"]
    assert "A  a.opw: nvme0n1, 40.0 s in 40 intervals" in tables[0]
    assert "discard" in out
    assert "[1] " in out


def test_json_has_all_runs_and_figures(compare: Shown) -> None:
    status, out, err = compare("a.opw", "b.opw", "--json", "--fail-if", "p99>+5%", "--op", "read")
    document: dict[str, Any] = json.loads(out)
    assert (status, err, len(out.splitlines())) == (1, "", 1)
    assert (document["schema"], document["type"]) == ("opwatch/1", "compare")
    (disk,) = document["disks"]
    assert [run["device"] for run in disk["runs"]] == ["nvme0n1", "sda"]
    figures = {(figure["op"], figure["metric"]): figure for figure in disk["figures"]}
    assert {op for op, _ in figures} == {"read", None}
    p99 = figures["read", "p99"]
    assert [run["low"] <= run["value"] <= run["high"] for run in p99["runs"]] == [True, True]
    assert p99["differences"][0]["statement"] == "higher"
    assert p99["differences"][0]["is_real"] is True
    assert figures[None, "cpu"]["runs"][0] == {
        "value": None,
        "low": None,
        "high": None,
        "scatter_ratio": None,
        "correlation": None,
        "reason": CPU_NOT_RECORDED,
    }
    (ruling,) = document["rules"]
    assert (ruling["rule"], ruling["ruling"], ruling["op"], ruling["run"]) == ("p99>+5%", "fires", "read", 1)


def test_cpu_time_is_compared(compare: Shown) -> None:
    status, out, err = compare("light.opw", "heavy.opw", "light.opw", "--fail-if", "cpu>+10%")
    assert (status, err) == (1, "")
    rows = [line.split() for line in out.splitlines() if line.startswith(" " * 8 + "CPU")]
    assert [row[0] for row in rows[:4]] == ["CPUs", "CPU/IO", "CPUs", "CPU/IO"]
    assert [row[-1] for row in rows[:2]] == ["HIGHER", "HIGHER"]
    assert [row[-2:] for row in rows[2:4]] == [["no", "difference"]] * 2
    assert rows[0][1:8] == ["0.600", "±", "0.002", "0.720", "±", "0.002", "1.200"]
    assert "cpu>+10%: FIRES, CPUs of B (nvme0n1) is +20.0 %" in out
    _, out, _ = compare("light.opw", "heavy.opw", "--json", "--fail-if", "cpu_io>+10us")
    document = json.loads(out)
    figures = {figure["metric"]: figure for figure in document["disks"][0]["figures"] if not figure["op"]}
    light = figures["cpu_io"]["runs"][0]
    # 0.6 CPUs for 4,003 requests per second, including discards.
    assert light["value"] == pytest.approx(0.6e9 / 4003, rel=1e-3)
    # Nine hundredths of a second, out of about 24.
    assert (light["high"] - light["value"]) / light["value"] == pytest.approx(0.09 / 24, rel=0.01)
    assert document["rules"][0]["ruling"] == "fires"


def test_cpu_time_of_the_command_is_a_separate_figure(compare: Shown, folder: Path) -> None:
    made = (folder / "light.opw").read_bytes()
    (folder / "with-command.opw").write_bytes(made)
    with closing(sqlite3.connect(folder / "with-command.opw")) as connection, connection:
        row = (42, 5, COMMAND_CPU, '{"user_s":8.0,"system_s":0.006}', None)
        connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, 0)", row)
        update_checksums(connection)
    status, out, err = compare("with-command.opw", "light.opw", "--json")
    assert (status, err) == (0, "")
    figures = {figure["metric"]: figure for figure in json.loads(out)["disks"][0]["figures"]}
    one, other = figures["command_io"]["runs"]
    assert one["value"] == pytest.approx(8.006e9 / (40 * 4003))
    assert (one["reason"], other["value"]) == (WHOLE_RUN, None)
    assert other["reason"] == NO_COMMAND
    assert "command_io" not in compare("light.opw", "heavy.opw", "--json")[1]
    _, out, _ = compare("with-command.opw", "with-command.opw")
    assert "        cmd/IO        50.0u         50.0u   1.000" in out


def test_recording_without_cpu_time_leaves_the_rule_undecided(compare: Shown) -> None:
    status, out, _ = compare("light.opw", "a.opw", "--fail-if", "cpu>+1%")
    assert status == 0
    assert f"cpu>+1%: undetermined, CPUs of B (nvme0n1); {CPU_NOT_RECORDED}" in " ".join(out.split())


def test_markdown_in_file_names_is_escaped(compare: Shown) -> None:
    status, out, _ = compare("a.opw", "a|b*<x>.opw", "--markdown", "--fail-if", "p99>+5%")
    assert status == 0
    assert "- B a\\|b\\*\\<x\\>.opw: nvme0n1" in out
    tables = [line for line in out.splitlines() if line.startswith("|")]
    assert {line.count("|") - line.count("\\|") for line in tables} == {8}
    assert "**" not in out
    _, out, _ = compare("a.opw", "b.opw", "--markdown", "--fail-if", "p99>+5%")
    assert "| **HIGHER** |" in out
    assert "- **p99\\>+5%: FIRES" in out


def test_markdown_characters_are_escaped() -> None:
    assert escaped("a|b") == "a\\|b"
    assert escaped("@user #1 [x](y)") == "\\@user \\#1 \\[x\\](y)"
    # Characters that matter only at the start of a line are not escaped elsewhere.
    assert escaped("2025-10-09 (5.94 MB/s + 3) - #x") == "2025-10-09 (5.94 MB/s + 3) - #x"
    assert [escaped(text) for text in ("- a", "# a", "> a", "12. a", "12) a")] == [
        *("\\- a", "\\# a", "\\> a", "12\\. a", "12\\) a")
    ]
    assert escaped_cell("-") == "-"
    assert escaped("a\nb") == "a?b"


@pytest.mark.parametrize(
    ("rules", "status", "words"),
    [
        (("p99>+5%",), 1, "p99>+5%: FIRES, read p99 of B (nvme0n1) is +15"),
        (("p99>+50%",), 0, "p99>+50%: holds, read p99 of B (nvme0n1) is +15"),
        (("p99>+50%", "read.p99>+100us"), 1, "read.p99>+100us: FIRES, read p99 of B (nvme0n1) is +3"),
        (("iops<-3%",), 0, "iops<-3%: holds, read /s of B (nvme0n1) is +0.0 %"),
        (
            ("waf>+0.1",),
            0,
            f"waf>+0.1: undetermined, WAF of B (nvme0n1); {NOT_READ}",
        ),
        (
            ("write.p99>+1%",),
            0,
            "write.p99>+1%: undetermined; ",
        ),
    ],
)
def test_rules_decide_the_exit_status(
    compare: Shown, rules: tuple[str, ...], status: int, words: str
) -> None:
    options = [word for rule in rules for word in ("--fail-if", rule)]
    said, out, _ = compare("a.opw", "b.opw", *options)
    assert said == status
    assert words in " ".join(out.split())


def test_quiet_prints_only_fired_rules(compare: Shown) -> None:
    status, out, err = compare("a.opw", "b.opw", "-q", "--fail-if", "p99>+5%", "--fail-if", "p50>+5%")
    assert (status, out) == (1, "")
    assert err.startswith("opwatch: p99>+5%: FIRES, read p99 of B")
    assert len(err.splitlines()) == 1
    assert compare("a.opw", "a.opw", "-q", "--fail-if", "p99>+5%") == (0, "", "")


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (("a.opw",), 2, r"\btwo\b"),
        (("a.opw", "none.opw"), 2, rf" none\.opw: {os.strerror(errno.ENOENT)}"),
        (("a.opw", "."), 1, r"^opwatch: \. "),
        (("a.opw", "idle.opw"), 6, r" idle\.opw "),
        (("a.opw", "b.opw", "--dev", "sda"), 2, r" a\.opw .*'sda'; .*: nvme0n1$"),
        (("a.opw", "b.opw", "--fail-if", "p99>5%"), 2, r"\bcolumn 5: .* \+ or -"),
        (("a.opw", "b.opw", "--fail-if", "p99>5ms"), 2, r"'p99>5ms'.*\blevel\b"),
        (("a.opw", "b.opw", "--op", "reed"), 2, r"'reed'.* read\?"),
        (("a.opw", "b.opw", "--json", "--markdown"), 2, "--markdown: .*--json$"),
    ],
)
def test_errors_have_a_status_and_message(
    compare: Shown, words: tuple[str, ...], status: int, error: str
) -> None:
    said, out, err = compare(*words)
    assert (said, out) == (status, "")
    assert re.search(error, " ".join(err.split()))


def test_other_files_are_refused(compare: Shown, folder: Path) -> None:
    (folder / "text.opw").write_text("IOPS 5\n")
    status, out, err = compare("a.opw", "text.opw")
    assert (status, out) == (1, "")
    assert "text.opw" in err


def test_short_run_names_the_required_length(compare: Shown) -> None:
    status, out, _ = compare("a.opw", "short.opw")
    assert status == 0
    assert "only 5 intervals (12 needed)" in out
    assert "HIGHER" not in out.replace("HIGHER and LOWER", "")


def test_device_pair_selects_a_disk_of_each_run(compare: Shown) -> None:
    status, out, _ = compare("a.opw", "b.opw", "--dev", "nvme0n1/sda")
    assert status == 0
    assert "B  b.opw: sda" in out


def test_recordings_with_every_kind_of_entry_are_compared(compare: Shown, folder: Path) -> None:
    """Disks that come and leave, drive readings, and no end: the available data is compared."""
    for name, is_ended in (("whole", True), ("killed", False)):
        run = GeneratedRun(4)
        watch: list[RunEntry] = [run.add_disk(0, "nvme0n1"), run.add_disk(1, "sda")]
        watch += [run.make_interval_entry([0, 1]) for _ in range(20)]
        watch += [
            run.add_disk(2, "sdb", late=True),
            run.make_refused_entry(),
            run.make_poll_entry("nvme0n1", 1000),
        ]
        watch += [
            run.make_interval_entry([0, 1, 2]),
            run.remove_disk(2),
            run.make_poll_entry("nvme0n1", 1001),
            run.make_interval_entry([0, 1]),
        ]
        record_run(folder / f"{name}.opw", watch, is_ended=is_ended)
    status, out, err = compare("whole.opw", "killed.opw", "--json")
    assert status == 0
    [line] = err.splitlines()
    assert line.startswith("opwatch: killed.opw ")
    devices = [disk["runs"][0]["device"] for disk in json.loads(out)["disks"]]
    assert {"nvme0n1", "sda"} <= set(devices)
    real = [
        figure
        for disk in json.loads(out)["disks"]
        for figure in disk["figures"]
        if figure["differences"][0]["is_real"]
    ]
    assert real == []


def test_closed_pipe_ends_quietly(folder: Path) -> None:
    command = [sys.executable, "-m", "opwatch", "compare", str(folder / "a.opw"), str(folder / "b.opw")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
