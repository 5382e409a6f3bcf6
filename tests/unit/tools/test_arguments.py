"""The command line: durations, percentages, mistyped commands, help."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch import __main__, __version__
from opwatch.errors import UsageError
from opwatch.quantities import parse_percentage
from opwatch.sinks import wrapping
from opwatch.times import TIME_EXAMPLES, format_duration, parse_time
from opwatch.tools import cli
from opwatch.tools.command_list import COMMANDS
from opwatch.tools.runs.backends import attach_tracer


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("200ms", 0.2), ("1d", 86400), (" 1s ", 1)],
)
def test_duration_is_parsed(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "s", "-1", "+1", "1e9", "inf", "nan", "1 0", "1,5", "10x", "1m30s", "٣", "1" * 400, "0x10", ".5"],
)
def test_invalid_duration_names_the_format(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_time(text)
    assert repr(text) in str(refused.value) and TIME_EXAMPLES in str(refused.value)


@given(st.integers(1, 10**9))
def test_formatted_duration_is_parsed_back(milliseconds: int) -> None:
    assert parse_time(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000, rel=1e-5)


def read_usage_error(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    try:
        status = cli.main(argv)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    assert status == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["wacth"], r"'wacth' .* watch\?"),
        (["wacth", "--dev", "x"], r"'wacth' .* watch\?"),
        (["nvme0n1"], r"'nvme0n1' .* --dev\b"),
        (["help", "wfa"], r"wfa\b.* waf\?"),
        (["trim", "chekc"], r"'chekc' .* check\?"),
        (["drive", "crate"], r"'crate' .* create\?"),
        (["--waf", "-1"], r"--waf: .*\(10ms to 1d\b"),
        (["0.001"], r"'0\.001' .*\(10ms to 1d\b"),
        (["waf", "--dev", "x", "--until-error", "0.0001%"], r"'0\.0001%': .* 0\.001% to 100%"),
        (["waf", "--dev", "x", "--until-error", "1"], r"'1': .* 0\.001% to 100%"),
        (["waf", "--dev", "x", "--poll", "2h"], r"'2h' .*\(10ms to 1h\b"),
        (["waf", "--dev", "sda", "--dev", "sdb"], "--dev: .* sda .* sdb"),
        (["trim", "record", "--dev", "sda", "--dev", "sda"], "--dev: .* sda .* sda"),
        (["trim", "audit", "--dev", "sda", "--dev", "sdb"], "--dev: .* sda .* sdb"),
        (["trim", "stale", "--dev", "sda", "--dev", "sdb"], "--dev: .* sda .* sdb"),
        (["--dvev", "loop0"], r" --dvev; .* --dev\?"),
        (["--dvev=loop0", "1"], r" --dvev; .* --dev\?"),
        (["record", "-o", "x", "--dvev", "loop0"], r" --dvev; .* --dev\?"),
        (["counters", "--dvev", "loop0"], r" --dvev; .* --dev\?"),
        (["drive", "create", "--sise", "1G"], r" --sise; .* --size\?"),
        (["--qqqqq"], " --qqqqq$"),
        (["--slow", "10"], "'10' .* 10ms or 10s"),
        (["--slow", "1.5"], r"'1\.5' .* 1\.5ms or 1\.5s"),
        (["--json", "--plain"], "--plain: .* --json"),
        (["1", "0"], r"'0' .*\(1 to 1000000000\)"),
        (["1", "1.5"], r"'1\.5' .*\(1 to 1000000000\)"),
        (["overhead", "--pairs", "-1"], r"'-1' .*\(0 to "),
        (["record", "-o", "-"], r"-o.*: .* \./-"),
        (["replay", "-"], r"\./-"),
        (["trim", "stale", "--seed", "1_0", "/"], r"--seed: '1_0' .*\(0 to 18446744073709551615\)"),
        (["trim", "stale", "--confidence", "95", "/"], r"'95': .* 50% to 99\.99%"),
    ],
)
def test_contradictory_arguments_name_the_remedy(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(words, read_usage_error(argv, capsys))


@pytest.mark.parametrize(("text", "seconds"), [("10ms", 0.01), ("2s", 2), ("0", 0), ("0.0", 0)])
def test_slow_limit_requires_a_unit(text: str, seconds: float) -> None:
    assert cli.parse(["--slow", text])[1].slow == seconds


def test_options_may_be_shortened_and_values_may_start_with_a_dash() -> None:
    _, args = cli.parse(["--disc", "--note=--dvev", "--dev", "x", "--", "fio", "--dvev"])
    assert (args.discards, args.note, args.dev, args.command) == (True, ["--dvev"], ["x"], ["fio", "--dvev"])


@pytest.mark.parametrize(
    "argv",
    [
        ["waf", "--dev", "x", "--for", "nonsense"],
        ["overhead", "--for", "nonsense"],
        ["trim", "audit", "--watch", "--for", "nonsense", "/"],
        ["trim", "audit", "--wait", "nonsense", "/"],
        ["trim", "record", "--dev", "x", "--for", "nonsense"],
        ["trim", "stale", "--seconds", "nonsense", "/"],
        ["--waf", "nonsense"],
        ["1", "--waf", "nonsense"],
    ],
)
def test_every_command_reads_durations_alike(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search(rf"'nonsense' .*{re.escape(TIME_EXAMPLES)}", read_usage_error(argv, capsys))
    place = argv.index("nonsense")
    _, args = cli.parse([*argv[:place], "10m", *argv[place + 1 :]])
    assert 600.0 in vars(args).values()


@pytest.mark.parametrize(
    "argv",
    [
        ["trim", "audit", "-m", "4X", "/"],
        ["trim", "check", "-m", "4X", "/"],
        ["trim", "stale", "--physical", "4X", "/"],
    ],
)
def test_every_command_reads_sizes_alike(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert re.search("'4X' .*4G or 512M", read_usage_error(argv, capsys))
    place = argv.index("4X")
    _, args = cli.parse([*argv[:place], "4G", *argv[place + 1 :]])
    assert 4 << 30 in vars(args).values()


@given(st.integers(0, 10**9))
def test_a_percentage_is_read_exactly(thousandths: int) -> None:
    whole, rest = divmod(thousandths, 1000)
    assert Fraction(*parse_percentage(f"{whole}.{rest:03} %")) == Fraction(thousandths, 100_000)


@pytest.mark.parametrize(
    ("argv", "usage"),
    [
        (["help"], "usage: opwatch [--dev D]"),
        (["help", "waf"], "usage: opwatch waf"),
        (["help", "trim", "check"], "usage: opwatch trim check"),
        (["waf", "--help"], "usage: opwatch waf"),
    ],
)
def test_help_starts_with_the_usage(argv: list[str], usage: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(argv)
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(usage)


CALLS = [
    (name, *verb) for name, entry in COMMANDS.items() for verb in ((), *((verb,) for verb in entry.verbs))
]


@pytest.mark.parametrize("columns", [56, 66, 80])
def test_help_fits_the_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(wrapping, "get_width", lambda _: columns)
    for words in CALLS:
        with pytest.raises(SystemExit) as end:
            cli.main(["help", *words])
        assert end.value.code == 0
        printed = capsys.readouterr().out
        assert [line for line in printed.splitlines() if len(line) > columns] == [], words
        assert "--dev\n" not in printed.partition("\n\n")[0], words


def _format_help(columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(wrapping, "get_width", lambda _: columns)
    with pytest.raises(SystemExit):
        cli.main(["sweep", "run", "--help"])
    return capsys.readouterr().out


def test_help_is_folded_once_where_the_terminal_is_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _format_help(120, capsys, monkeypatch) == _format_help(80, capsys, monkeypatch)


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_cli_version(option: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["opwatch", option])
    assert __main__.main() == 0
    assert capfd.readouterr().out == f"opwatch {__version__}\n"


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_version_on_a_full_device_is_an_error(option: str) -> None:
    """The shortcut that prints the version without a parser fails, and the parser's path reports the
    error."""
    with open("/dev/full", "w") as full:
        argv = [sys.executable, "-m", "opwatch", option]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("opwatch: ") and os.strerror(errno.ENOSPC) in line


@pytest.mark.parametrize("text", ["0.0001ms", "2h", "10us", "-1", "", "nan"])
def test_slow_limit_accepts_plausible_latencies(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["record", "-o", "x.opw", f"--slow={text}"])
    assert ended.value.code == 2
    assert "(0.001ms to 1h" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("backend", ["bcc", "bpftrace"])
def test_slow_requests_need_the_libbpf_backend(backend: str) -> None:
    with pytest.raises(UsageError, match=r"--slow .*libbpf"):
        attach_tracer(backend, [], slow_ns=1)
