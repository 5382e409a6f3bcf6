"""`python -m tests.repeat`: a test that failed is repeated alone, and fails the run if it fails again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_CHECKOUT = Path(__file__).resolve().parents[3]
# Each case fails so often, and counts its runs.
_TEST = """
from pathlib import Path
import pytest

@pytest.mark.parametrize(("index", "failures"), list(enumerate({failures})))
def test_it(index, failures):
    runs = Path(f"runs-{{index}}")
    runs.write_text(f"{{runs.read_text() if runs.exists() else ''}}x")
    assert len(runs.read_text()) > failures
"""


def run_repeat(folder: Path, failures: list[int]) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(_TEST.format(failures=failures))
    environment = os.environ | {"PYTHONPATH": str(_CHECKOUT)}
    argv = [sys.executable, "-m", "tests.repeat", "-n", "0", "test_it.py"]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def count_runs(folder: Path) -> list[int]:
    return [len(path.read_text()) for path in sorted(folder.glob("runs-*"))]


def test_test_that_passes_alone_is_named(tmp_path: Path) -> None:
    done = run_repeat(tmp_path, [0, 1])
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].endswith("test_it.py::test_it[1-1]")
    assert count_runs(tmp_path) == [1, 2]


def test_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    assert run_repeat(tmp_path, [0, 2]).returncode == 1
    assert count_runs(tmp_path) == [1, 2]


@pytest.mark.parametrize("failures", [[0], [0, 0]])
def test_nothing_is_repeated_without_failures(tmp_path: Path, failures: list[int]) -> None:
    assert run_repeat(tmp_path, failures).returncode == 0
    assert count_runs(tmp_path) == [1] * len(failures)


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    assert run_repeat(tmp_path, [0, 1, 1, 1, 1]).returncode == 1
    assert count_runs(tmp_path) == [1] * 5


def test_run_that_did_not_start_is_not_repeated(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "tests.repeat", "-n", "0", "test_none.py"]
    environment = os.environ | {"PYTHONPATH": str(_CHECKOUT)}
    assert (
        subprocess.run(argv, cwd=tmp_path, env=environment, capture_output=True, check=False).returncode == 4
    )
