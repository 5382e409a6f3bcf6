"""Tests of `make install` and `make uninstall`, with a temporary prefix."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from opwatch import __version__
from tests.requirements import skip_or_fail

ROOT = Path(__file__).parents[2]


def run_make(*targets: str) -> str:
    # The checkout that runs this test is built. `make install` sets OPWATCH_BPF itself.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-s", "-o", "build", f"PYTHON={sys.executable}", *targets],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        umask=0,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_daemons(prefix: Path) -> None:
    """Check that the broker runs, and that every unit starts a program that was installed."""
    broker = prefix / "sbin/opwatch-broker"
    version = subprocess.run([broker, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"opwatch-broker {__version__}\n"
    units = sorted((prefix / "lib/systemd/system").iterdir())
    assert [unit.name for unit in units] == [
        *("opwatch-broker.service", "opwatch-broker.socket"),
        *("opwatch-exporter.service", "opwatch-flight.service"),
    ]
    started = {
        line.split()[0] for unit in units for line in re.findall(r"^ExecStart=(.*)", unit.read_text(), re.M)
    }
    assert started == {str(broker), str(prefix / "bin/opwatch")}
    assert (prefix / "lib/sysusers.d/opwatch.conf").exists()


@pytest.mark.skipif(not (ROOT / ".venv/bin/python").exists(), reason="make build has made no .venv here")
def test_installed_command_runs_and_uninstall_removes_every_file(tmp_path: Path) -> None:
    try:
        from opwatch._native import Tracer  # noqa: F401
    except ImportError:
        skip_or_fail("kernel", "opwatch was built without its tracer, and make install builds it")
    prefix, other = tmp_path / "usr", tmp_path / "usr" / "bin" / "another"
    other.parent.mkdir(parents=True)
    other.write_text("somebody else's")
    assert run_make("install", f"PREFIX={prefix}").split()[-2:] == ["opwatch", __version__]
    command = prefix / "bin" / "opwatch"
    version = subprocess.run(
        [command, "--version"],
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout == f"opwatch {__version__}\n"
    modes = {path: path.lstat().st_mode for path in prefix.rglob("*") if not path.is_symlink()}
    # Skip the test's own files.
    ours = {path: mode for path, mode in modes.items() if path not in (other, *other.parents)}
    assert len(ours) > 100
    assert [path for path, mode in ours.items() if mode & (stat.S_IWGRP | stat.S_IWOTH)] == []
    # Nothing is imported from the checkout.
    assert ROOT not in command.resolve().parents
    where = "import opwatch, opwatch._native; print(opwatch.__file__, opwatch._native.__file__)"
    modules = subprocess.run(
        [command.resolve().parent / "python", "-c", where],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(Path(file).is_relative_to(prefix) for file in modules.stdout.split())
    manuals = {path.name for path in (prefix / "share/man").rglob("*.[18]")}
    assert {"opwatch.1", "opwatch-trim-audit.1", "opwatch-broker.8"} <= manuals
    for script in ("bash-completion/completions/opwatch", "zsh/site-functions/_opwatch"):
        assert "trim audit" in (prefix / "share" / script).read_text()
    assert "trim audit" in (prefix / "share/fish/vendor_completions.d/opwatch.fish").read_text()
    check_daemons(prefix)
    run_make("uninstall", f"PREFIX={prefix}")
    assert [path for path in prefix.rglob("*") if not path.is_dir() or path.is_symlink()] == [other]
    assert not (prefix / "lib/opwatch").exists()
