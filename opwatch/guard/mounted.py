"""Why files must not be made on a mounted file system, and its free space not be trimmed. Pure.

A sweep by files destroys nothing but what it made itself. It wears the drive all the same, it takes room that
others may need, and it trims: only where the person has named that very mount and that very drive.
"""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.frozen import replace
from opwatch.guard.facts import GuardFacts, PartFacts
from opwatch.guard.obstacles import Obstacle
from opwatch.host.usage import Mount

# These file systems write a block of a file again where it was.
_IN_PLACE = ("ext4", "xfs")
# What a file system itself asks for in a second, at most: a commit of its journal, and what follows on it.
_OWN_REQUESTS = 64


def of_other_parts(facts: GuardFacts, mounted: str) -> GuardFacts:
    """The facts for files on the part of this name, which stays mounted: what speaks against them is who uses
    the other parts of the drive, and not that there are some, or what is on them. A few requests are the file
    system's own; while the workload writes, every byte of others is counted."""
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
    if foreign and foreign.reads + foreign.writes <= _OWN_REQUESTS:
        foreign = None
    return replace(facts, parts=(users,), partition=None, foreign=foreign)


def obstacles_of_mount(mount: Mount, device: str, dev: tuple[int, int]) -> Iterator[Obstacle]:
    """What is wrong with files on this mount, where `device` of this number was named."""
    if mount.dev != f"{dev[0]}:{dev[1]}":
        remedy = f"name what is mounted there with --dev, if that may be worn: {mount.source}"
        yield Obstacle(f"it is no mount of {device}, but of {mount.source}", mount.point, remedy)
    if mount.root != "/":
        remedy = "name where all of the file system is mounted"
        yield Obstacle(f"only its folder {mount.root} is mounted there", mount.point, remedy)
    if mount.filesystem not in _IN_PLACE:
        remedy = f"make one of {', '.join(_IN_PLACE)}, or take --method window"
        what = f"{mount.filesystem} may write a block of a file elsewhere than where it was"
        yield Obstacle(f"levels by files are not for it: {what}", mount.point, remedy)
    if "data=journal" in (*mount.options, *mount.super_options):
        remedy = "mount it without data=journal"
        yield Obstacle("it writes all data twice (data=journal)", mount.point, remedy)
