"""Tests that the packages are complete: a wheel built from the source distribution, in a new environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from opwatch import __version__

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "tests/fixtures/good/counters/smartctl_exporter/nvme-null-INTEL_SSDPEDMD800G4-nvme0.json"


def run(*argv: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution of this checkout and return its path."""
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "setup.py", "-q", "egg_info", "-e", folder, "sdist", "-d", folder, cwd=ROOT)
    [archive] = folder.glob("opwatch-*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def installed(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel built from that distribution into a new environment, and return its bin folder."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
    run(*pip, "wheel", "--no-build-isolation", "--no-deps", "-w", folder, sources, cwd=folder)
    [wheel] = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    own = folder / "venv/bin/python"
    run(own, "-m", "pip", "-q", "install", "--no-index", "--no-deps", wheel, cwd=folder)
    return folder / "venv/bin"


def test_source_distribution_contains_all_tracked_sources(sources: Path) -> None:
    with tarfile.open(sources) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.check_output(["git", "-C", str(ROOT), "ls-files", "bpf", "opwatch"], text=True)
    assert {name for name in tracked.split() if not (ROOT / name).is_symlink()} - names == set()


@pytest.mark.manual
def test_installed_wheel_runs(installed: Path) -> None:
    command = installed / "opwatch"
    assert run(command, "--version", cwd=installed) == f"opwatch {__version__}\n"
    document = json.loads(run(command, "counters", "--from", REPORT, "--json", cwd=installed))
    assert document["device"]["model"] == "INTEL SSDPEDMD800G4"
    assert document["host_written"]["bytes"] == 7_708_206_927_872_000
    where = "import opwatch, opwatch._native; print(opwatch.__file__, opwatch._native.__file__)"
    modules = run(installed / "python", "-c", where, cwd=installed)
    assert all(Path(file).is_relative_to(installed.parent) for file in modules.split())


@pytest.mark.manual
def test_doctor_of_the_installed_wheel_finds_the_extension(installed: Path) -> None:
    done = subprocess.run(
        [installed / "opwatch", "doctor", "--json"],
        cwd=installed,
        capture_output=True,
        text=True,
        check=False,
    )
    # The package is not at fault if the machine lacks a feature.
    assert done.returncode in (0, 4, 5), done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["extension"]["state"] == "ok"
