"""The systemd units are confined, name programs that are installed, and allow the calls of their programs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from opwatch.tools import cli
from opwatch.tools.command_list import COMMANDS
from tests.requirements import skip_or_fail
from tests.tracked import ROOT

UNITS = ROOT / "tools/deploy/systemd"
# The highest score of `systemd-analyze security`, in tenths: 100 is a unit without any protection.
MOST_EXPOSED = {"opwatch-exporter": 12, "opwatch-broker": 21, "opwatch-flight": 25}
# Capabilities by which a broken unit could do more than read disks.
_NEVER = {"CAP_SYS_MODULE", "CAP_SYS_PTRACE", "CAP_NET_ADMIN", "CAP_MKNOD", "CAP_SETUID", "CAP_DAC_OVERRIDE"}


def read_settings(unit: str) -> dict[str, list[str]]:
    """Return the values of each setting of a unit, in order."""
    settings: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", (UNITS / unit).read_text(), re.MULTILINE):
        settings.setdefault(name, []).append(value)
    return settings


def list_users() -> set[str]:
    return set(re.findall(r"^u (\S+)", (UNITS / "opwatch.sysusers.conf").read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_unit_is_confined(name: str) -> None:
    if not shutil.which("systemd-analyze"):
        skip_or_fail("systemd", "systemd-analyze is not installed")
    argv = ["systemd-analyze", "security", "--offline=true", str(UNITS / f"{name}.service")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        skip_or_fail("systemd", "this systemd-analyze scores no files (it takes version 250)")
    [score] = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert 10 * float(score) <= MOST_EXPOSED[name], done.stdout


def test_systemd_knows_every_setting_of_the_units(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        skip_or_fail("systemd", "systemd-analyze is not installed")
    for path in (*UNITS.glob("*.service"), *UNITS.glob("*.socket")):
        # The programs are not installed here.
        text = re.sub(r"/usr/local/s?bin/[\w-]+", "/bin/true", path.read_text())
        (tmp_path / path.name).write_text(text)
    argv = ["systemd-analyze", "verify", "--man=no", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    # It also reports faults of this machine's units.
    assert [line for line in done.stderr.splitlines() if "opwatch-" in line] == []


@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_unit_holds_only_capabilities_it_needs(name: str) -> None:
    [bounding] = read_settings(f"{name}.service")["CapabilityBoundingSet"]
    assert not _NEVER & set(bounding.split())
    if name == "opwatch-exporter":
        assert bounding == ""
        assert "AmbientCapabilities" not in read_settings(f"{name}.service")


def test_exporter_is_restarted_after_every_end() -> None:
    # SIGHUP, by which it is reloaded, is a clean end for Restart=on-failure.
    settings = read_settings("opwatch-exporter.service")
    assert "-HUP" in settings["ExecReload"][0]
    assert settings["Restart"] == ["always"]


def test_users_of_units_are_created() -> None:
    broker, exporter = (read_settings(f"opwatch-{name}.service") for name in ("broker", "exporter"))
    assert {*broker["User"], *exporter["User"]} == list_users()
    # The socket and the broker itself allow the exporter.
    assert read_settings("opwatch-broker.socket")["SocketGroup"] == exporter["User"]
    words = shlex.split(broker["ExecStart"][0])
    assert words[1:] == ["--user", exporter["User"][0], "--group", exporter["User"][0]]


def test_socket_is_where_the_exporter_looks_for_it() -> None:
    from opwatch.collectors.broker.protocol import SOCKET

    assert read_settings("opwatch-broker.socket")["ListenSequentialPacket"] == [SOCKET]


@pytest.mark.parametrize("name", ["exporter", "flight"])
def test_command_line_of_the_unit_is_valid(name: str) -> None:
    words = shlex.split(read_settings(f"opwatch-{name}.service")["ExecStart"][0])
    assert words[:2] == ["/usr/local/bin/opwatch", name]
    if name not in COMMANDS:
        pytest.skip(f"this opwatch has no {name} yet")
    cli.parse(words[1:])


def test_makefile_installs_every_unit() -> None:
    [listed] = re.findall(r"^UNITS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(listed.split()) == {path.name for path in UNITS.iterdir() if path.suffix != ".conf"}
