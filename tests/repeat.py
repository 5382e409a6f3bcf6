"""Run pytest, and repeat the few tests that failed, each alone.

    python -m tests.repeat PYTEST-ARGUMENT...

Tests of loads and times share the processors with other tests and with whatever else the host does. A test
that fails again without them fails the run; one that passes is named at the end. More than `_MOST` failures
are no accident, and are not repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_MOST = 3
_TESTS_FAILED = 1


def run_pytest(arguments: Sequence[str], cache: Path) -> tuple[int, list[str]]:
    """Return pytest's exit status, and the tests that failed."""
    argv = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    status = subprocess.run(argv, check=False).returncode
    kept = cache / "v/cache/lastfailed"
    return status, sorted(json.loads(kept.read_text())) if kept.exists() else []


def repeat_failures(arguments: Sequence[str]) -> int:
    """Return the exit status: 0 if each test passed, beside the others or alone."""
    with tempfile.TemporaryDirectory(prefix="opwatch-tests-") as folder:
        status, failed = run_pytest(arguments, Path(folder) / "all")
        if status != _TESTS_FAILED or not 0 < len(failed) <= _MOST:
            return status
        for index, name in enumerate(failed):
            print(f"\nopwatch: {name} failed; it is repeated alone", flush=True)
            status, _ = run_pytest(["-n", "0", name], Path(folder) / str(index))
            if status:
                print(f"opwatch: {name} failed again", flush=True)
                return status
    print(f"\nopwatch: passed only alone: {', '.join(failed)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(repeat_failures(sys.argv[1:]))
