"""Who has a file open, a device, or a file below a folder."""

from __future__ import annotations

import contextlib
from pathlib import Path


def users_of(path: Path | str) -> list[str]:
    """Names of the processes that have it open, or a file in it."""
    users = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        # A process that ends meanwhile has none.
        with contextlib.suppress(OSError):
            if any(f"{target.readlink()}/".startswith(f"{path}/") for target in folder.iterdir()):
                users.append((folder.parent / "comm").read_text().strip())
    return users
