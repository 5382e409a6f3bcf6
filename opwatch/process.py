"""Other tools, run by their arguments and never through a shell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from opwatch.errors import OpwatchError, Unsupported


def run_tool(argv: Sequence[str], timeout_s: float = 60) -> str:
    """What a tool printed. Its failure is ours, with its own words."""
    if not shutil.which(argv[0]):
        raise Unsupported(f"{argv[0]} is not installed; opwatch doctor says which package has it")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise OpwatchError(f"{argv[0]} did not end within {timeout_s:.0f} s") from error
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise OpwatchError(f"{argv[0]} failed ({done.returncode}): {words[-1] if words else 'silently'}")
    return done.stdout
