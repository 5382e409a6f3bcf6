"""The C tests, each a separate program under ASan and UBSan."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.requirements import skip_or_fail

HERE = Path(__file__).parent
SKIPPED = 77


@pytest.fixture(scope="module")
def built() -> Path:
    done = subprocess.run(["make", "-s", "-C", str(HERE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return HERE / "build"


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("test_*.c")))
def test_c_tests_pass_under_sanitizers(built: Path, name: str) -> None:
    done = subprocess.run(
        [built / name],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"FUZZ_OPS": os.environ.get("FUZZ_OPS", "200000")},
    )
    if done.returncode == SKIPPED:
        skip_or_fail("kernel", done.stdout.strip())
    assert done.returncode == 0, done.stderr[-4000:]
