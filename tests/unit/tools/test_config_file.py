from __future__ import annotations

from pathlib import Path

import pytest

from opwatch.errors import UsageError
from opwatch.tools import cli
from opwatch.tools.commands import doctor
from opwatch.tools.config_file import SETTINGS, VARIABLE


@pytest.fixture(name="config")
def fixture_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "opwatch.toml"
    monkeypatch.setenv(VARIABLE, str(path))
    path.write_text(
        '# defaults\ndevices = ["sda", "sdb"]\ninterval = "10s"\n[waf]\nrefresh = "5m"\n'
        '[exporter]\nlisten-address = [":1", ":2"]\ndrives-every = "0"\notlp = "http://collector/"\n'
    )
    return path


@pytest.mark.parametrize("command", ["watch", "top", "record", "flight"])
def test_file_sets_the_defaults_of_each_watch(config: Path, command: str) -> None:
    words = [command, *(["-o", "x.opw"] if command == "record" else [])]
    _, args = cli.parse(words)
    assert (args.dev, args.interval) == (["sda", "sdb"], 10.0)


def test_file_sets_the_defaults_of_waf_and_the_exporter(config: Path) -> None:
    assert cli.parse(["waf", "--dev", "x"])[1].refresh == 300
    args = cli.parse(["exporter"])[1]
    assert (args.dev, args.listen, args.drives_every) == (["sda", "sdb"], [":1", ":2"], 0)
    assert args.otlp == "http://collector/"
    # Sockets of systemd take the place of addresses.
    assert cli.parse(["exporter", "--web.systemd-socket"])[1].listen is None


def test_command_line_wins(config: Path) -> None:
    _, args = cli.parse(["--dev", "nvme0n1", "2", "3"])
    assert (args.dev, args.interval, args.count) == (["nvme0n1"], 2.0, 3)
    assert cli.parse(["record", "-o", "x.opw", "--every", "3s"])[1].interval == 3
    args = cli.parse(["exporter", "--web.listen-address", ":9", "--drives-every", "7"])[1]
    assert (args.listen, args.drives_every) == ([":9"], 7)


@pytest.mark.parametrize("variable", [None, ""])
def test_without_a_file_the_defaults_are_built_in(
    variable: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if variable is None:
        monkeypatch.delenv(VARIABLE, raising=False)
        monkeypatch.setattr("opwatch.tools.config_file.DEFAULT_PATH", tmp_path / "none.toml")
    else:
        monkeypatch.setenv(VARIABLE, variable)
    args = cli.parse([])[1]
    assert (args.dev, args.interval) == (None, 1.0)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('\ndevice = ["sda"]\n', 2, "unknown key 'device'; did you mean devices?"),
        ('[waf]\n\nrefrsh = "1m"\n', 3, "unknown key 'waf.refrsh'; did you mean waf.refresh?"),
        ("[other]\n", 1, "unknown key 'other'"),
        ('devices = "sda"\n', 1, "devices is not a list"),
        ("devices = []\n", 1, "devices is not a list"),
        ("devices = [1]\n", 1, "devices is not a list"),
        ("interval = 10\n", 1, "interval is not a text"),
        ('interval = "0s"\n', 1, "interval: '0s' is out of range"),
        ('waf = "x"\n', 1, "unknown key 'waf'"),
        ("devices = [\n", None, "at "),
    ],
)
def test_bad_file_is_refused_with_file_and_line(
    config: Path, text: str, line: int | None, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config.write_text(text)
    assert cli.main(["1", "1"]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert (f"{config.name}, line {line}: " if line else config.name) in message
    assert words in message


def test_named_file_must_exist(config: Path) -> None:
    config.unlink()
    with pytest.raises(UsageError, match="does not exist"):
        cli.parse([])


def test_commands_without_settings_do_not_read_the_file(config: Path) -> None:
    config.write_text("nonsense")
    assert cli.parse(["devices"])[1].names == []
    assert cli.parse(["completion", "bash"])[1].what == "bash"


def test_doctor_lists_effective_values_and_their_sources(config: Path) -> None:
    findings = [check.finding for check in doctor._check_settings()]
    assert len(findings) == len(SETTINGS)
    assert findings[0] == f"devices: sda, sdb ({config}, line 2)"
    assert "exporter.drive-deadline: 10s (built in)" in findings
    config.write_text("x = 1\n")
    (problem,) = doctor._check_settings()
    assert (problem.exit_status, "line 1: unknown key 'x'" in problem.finding) == (2, True)


def test_manual_lists_every_key() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "man" / "opwatch.1").read_text().replace("\\-", "-")
    files = manual[manual.index(".SH FILES") : manual.index(".SH ENVIRONMENT")]
    assert [one.key for one in SETTINGS if one.key.rpartition(".")[2] + " = " not in files] == []
