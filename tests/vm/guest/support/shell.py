"""Run the programs that create devices."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path


def run_command(*argv: str, stdin: str | None = None, timeout_s: float = 300.0) -> str:
    """Return the program's output; the error of a failed program holds its error output."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def write_attribute(path: Path, value: str | int) -> None:
    """Write an attribute; the error names the path and the value."""
    try:
        path.write_text(f"{value}\n")
    except OSError as error:
        raise OSError(error.errno, f"{path} <- {value}: {error.strerror}") from error


def ensure_mounted(kind: str, where: Path) -> None:
    """Mount a kernel file system if it is not mounted yet."""
    table: Sequence[str] = Path("/proc/mounts").read_text().splitlines()
    if not any(line.split()[1:3] == [str(where), kind] for line in table):
        run_command("mount", "-t", kind, kind, str(where))
