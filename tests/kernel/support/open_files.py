"""Processes that have a file, a device, or a file below a folder open."""

from __future__ import annotations

import contextlib
from pathlib import Path


def find_users(path: Path | str) -> list[str]:
    """Return the names of the processes that have the path open, or a file in it."""
    users = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        # The process has ended in the meantime.
        with contextlib.suppress(OSError):
            if any(f"{target.readlink()}/".startswith(f"{path}/") for target in folder.iterdir()):
                users.append((folder.parent / "comm").read_text().strip())
    return users
