"""Find obstacles to creating files on a mounted file system and trimming its free space. Pure.

A sweep with files destroys only its own files, but still wears the drive, takes up space and trims. Therefore
the user must name the exact mount and drive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from opwatch.guard.facts import GuardFacts, PartFacts
from opwatch.guard.obstacles import Obstacle
from opwatch.host.usage import Mount

# File systems that overwrite a file's blocks in place.
_OVERWRITING_FILESYSTEMS = ("ext4", "xfs")
# Maximum number of the file system's own requests per second: a journal commit and its consequences.
_MAX_OWN_REQUESTS = 64


def keep_other_parts(facts: GuardFacts, mounted: str) -> GuardFacts:
    """Return the facts for files on part `mounted`, which stays mounted. Only users of the drive's other
    parts are obstacles, not the existence or contents of those parts. A few requests are the file system's
    own; during the workload, every byte of other writers is counted."""
    others = [part for part in facts.parts if part.name != mounted]
    users = PartFacts(
        name=facts.identity.name,
        mounts=tuple(mount for part in others for mount in part.mounts),
        holders=tuple(
            holder
            for part in facts.parts
            for holder in part.holders
            if holder not in {one.name for one in facts.parts}
        ),
        is_swap=any(part.is_swap for part in facts.parts),
    )
    foreign = facts.foreign
    if foreign and foreign.reads + foreign.writes <= _MAX_OWN_REQUESTS:
        foreign = None
    return replace(facts, parts=(users,), partition=None, foreign=foreign)


def find_mount_obstacles(mount: Mount, device: str, dev: tuple[int, int]) -> Iterator[Obstacle]:
    """Yield obstacles to files on `mount`, if the user named `device` with number `dev`."""
    if mount.dev != f"{dev[0]}:{dev[1]}":
        remedy = f"give the mounted device to --dev if it may be worn: {mount.source}"
        yield Obstacle(f"it is a mount of {mount.source}, not of {device}", mount.point, remedy)
    if mount.root != "/":
        remedy = "name a mount point of the whole filesystem"
        yield Obstacle(f"only its folder {mount.root} is mounted there", mount.point, remedy)
    if mount.filesystem not in _OVERWRITING_FILESYSTEMS:
        remedy = f"use one of {', '.join(_OVERWRITING_FILESYSTEMS)}, or --method window"
        what = f"{mount.filesystem} may move a file's block when it is overwritten"
        yield Obstacle(f"it does not support levels by files: {what}", mount.point, remedy)
    if "data=journal" in (*mount.options, *mount.super_options):
        remedy = "mount it without data=journal"
        yield Obstacle("it writes all data twice (data=journal)", mount.point, remedy)
