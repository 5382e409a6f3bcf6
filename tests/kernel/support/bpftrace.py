"""Run bpftrace around a workload, with a private tracefs mount if the host has none."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
SCRIPTS = sorted((ROOT / "tools" / "bt").glob("*.bt"))
_TRACING = Path("/sys/kernel/tracing")


def find_obstacle() -> str | None:
    """Return why bpftrace cannot run here, or None if bpftrace can run."""
    if not shutil.which("bpftrace"):
        return "bpftrace is not installed"
    return None if _TRACING.is_dir() else "this kernel has no tracefs"


def _with_tracefs(argv: Sequence[str]) -> list[str]:
    if (_TRACING / "events").is_dir():
        return list(argv)
    mount = f'mount -t tracefs tracefs {_TRACING} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, "sh", *argv]


def run_script(script: Path, *arguments: str, load: str, timeout_s: float = 600) -> list[dict[str, Any]]:
    """Return a script's JSON output for a load that starts once the script is attached."""
    code = ROOT / "tests/kernel/support/load.py"
    # bpftrace splits the command at blanks and does not support quotes.
    command = f"{sys.executable} {code} {load}"
    argv = ["bpftrace", "-f", "json", str(script), *arguments, "-c", command]
    done = subprocess.run(
        _with_tracefs(argv),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def collect_maps(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the final content of each map by name."""
    by_name: dict[str, Any] = {}
    for line in lines:
        if line["type"] in ("map", "hist", "stats"):
            by_name |= line["data"]
    return by_name
