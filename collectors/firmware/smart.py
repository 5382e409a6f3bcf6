"""Attributes, device statistics and SCSI logs through smartctl. A drive that sleeps is left asleep."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from opwatch.counters.evidence import Evidence
from opwatch.counters.looks.sample import SmartctlOutput
from opwatch.counters.looks.smartctl import USAGE, parse_output
from opwatch.errors import OpwatchError, Unsupported

_TIMEOUT_S = 60
# `-x` has device statistics; genstats is what SCSI drives know beyond it.
_OPTIONS = ("--json=c", "-x", "-l", "genstats", "-n", "standby,0")


def _run(argv: list[str]) -> SmartctlOutput:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise OpwatchError(f"smartctl did not end within {_TIMEOUT_S} s") from error
    return SmartctlOutput(done.returncode, done.stdout)


def ask_smartctl(node: Path, kind: str | None = None) -> SmartctlOutput:
    """What smartctl prints of a device; `kind` is its -d. Unsupported where there is no smartctl."""
    program = shutil.which("smartctl") or shutil.which("smartctl", path="/usr/sbin:/sbin")
    if not program:
        raise Unsupported("smartctl is not installed; opwatch doctor says which package has it")
    behind = ("-d", kind) if kind else ()
    output = _run([program, *_OPTIONS, *behind, str(node)])
    if output.status & USAGE:
        # Before version 7.5 there are no general statistics.
        options = [option for option in _OPTIONS if option not in ("-l", "genstats")]
        output = _run([program, *options, *behind, str(node)])
    return output


def collect_smart(node: Path, kind: str | None = None) -> Evidence:
    """What smartctl reads from a device. Unsupported without smartctl or without SMART data."""
    output = ask_smartctl(node, kind)
    return parse_output(output.status, output.text)
