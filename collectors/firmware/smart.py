"""Read attributes, device statistics and SCSI logs with smartctl. A sleeping drive is not woken."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from opwatch.counters.evidence import Evidence
from opwatch.counters.looks.sample import SmartctlOutput
from opwatch.counters.looks.smartctl import USAGE, parse_output
from opwatch.errors import OpwatchError, Unsupported

_TIMEOUT_S = 60
# `-x` includes device statistics; genstats adds statistics of SCSI drives.
_OPTIONS = ("--json=c", "-x", "-l", "genstats", "-n", "standby,0")


def _run_smartctl(argv: list[str]) -> SmartctlOutput:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OpwatchError(f"smartctl did not finish within {_TIMEOUT_S} s") from error
    return SmartctlOutput(done.returncode, done.stdout)


def ask_smartctl(node: Path, kind: str | None = None) -> SmartctlOutput:
    """Return smartctl's output for a device; `kind` is the -d option. Raise Unsupported without smartctl."""
    program = shutil.which("smartctl") or shutil.which("smartctl", path="/usr/sbin:/sbin")
    if not program:
        raise Unsupported("smartctl is not installed; opwatch doctor names its package")
    behind = ("-d", kind) if kind else ()
    output = _run_smartctl([program, *_OPTIONS, *behind, str(node)])
    if output.status & USAGE:
        # smartctl before 7.5 has no genstats.
        options = [option for option in _OPTIONS if option not in ("-l", "genstats")]
        output = _run_smartctl([program, *options, *behind, str(node)])
    return output


def collect_smart(node: Path, kind: str | None = None) -> Evidence:
    """Return smartctl's data of a device. Raise Unsupported without smartctl or without SMART data."""
    output = ask_smartctl(node, kind)
    return parse_output(output.status, output.text)
