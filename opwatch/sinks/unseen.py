"""Parts of the system that a check could not inspect, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from opwatch.host.mountspaces import MountedIn
from opwatch.sinks.wrapping import wrap_text
from opwatch.units import replace_unprintable

# Machines may run hundreds of containers.
_MAX_NAMES = 10


@dataclass(frozen=True, slots=True)
class Unseen:
    """Filesystems mounted in other mount namespaces only, and kinds of processes that were not visible."""

    mounts: tuple[MountedIn, ...]
    processes: tuple[str, ...]


def format_unseen(unseen: Unseen) -> Iterator[str]:
    """Yield lines about the parts not inspected; none if everything was inspected."""
    for mount in unseen.mounts[:_MAX_NAMES]:
        yield from wrap_text(f"{mount}, but not here: it was not checked", "elsewhere  ")
        # Never wrap a command, to allow copying.
        yield " " * 11 + replace_unprintable(f"run: opwatch trim check --dev {mount.mount.source}")
    if len(unseen.mounts) > _MAX_NAMES:
        rest = f"and {len(unseen.mounts) - _MAX_NAMES} more (--json lists all)"
        yield from wrap_text(rest, "elsewhere  ")
    for words in unseen.processes:
        yield from wrap_text(words, "not seen   ")
    if unseen.processes:
        yield from wrap_text(
            "deleted files that these hold open, and filesystems that only they have mounted, are not "
            "listed above; root of the machine itself, outside containers, sees them",
            " " * 11,
        )


def build_unseen_document(unseen: Unseen) -> dict[str, Any]:
    """Return `elsewhere` and `unseen`, both empty if everything was inspected."""
    return {
        "elsewhere": [
            {
                "device": mount.mount.source,
                "filesystem": mount.mount.filesystem,
                "mount": mount.mount.point,
                "pid": mount.space.pid,
            }
            for mount in unseen.mounts
        ],
        "unseen": list(unseen.processes),
    }
