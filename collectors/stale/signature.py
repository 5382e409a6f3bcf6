"""Identify the content of a block device."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from opwatch.errors import OpwatchError, Unsupported
from opwatch.foreign import decode_text, split_lines

_NOTHING, _SEVERAL = 2, 8


def read_signature(device: str) -> str | None:
    """Return the file system, RAID or partition table on a device, or None if nothing is recognized."""
    if not shutil.which("blkid"):
        raise Unsupported("blkid is not installed, so the device's content is unknown (install util-linux)")
    argv = ["blkid", "-p", "-o", "export", str(Path("/dev") / device)]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    said = decode_text(done.stderr).strip()
    if done.returncode == _NOTHING and not said:
        return None
    if done.returncode == _SEVERAL:
        return "several signatures"
    if done.returncode:
        raise OpwatchError(f"blkid cannot read {device}: {said or done.returncode}")
    tags = dict(line.split("=", 1) for line in split_lines(decode_text(done.stdout)) if "=" in line)
    table = tags.get("PTTYPE")
    return tags.get("TYPE") or (f"a partition table ({table})" if table else "a signature of unknown type")
