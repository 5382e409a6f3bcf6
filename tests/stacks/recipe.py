"""A stack as a recipe: made of a seed, printed, and shrunk. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

MIB = 1 << 20
FILESYSTEMS = ("ext4", "ext4-1k", "ext4-bigalloc", "xfs", "btrfs")
# What may stand between: "loop" is one on a device, the others with a file have a filesystem of their own.
LAYERS = ("linear", "crypt", "loop", "file-ext4", "file-xfs", "reflink", "thin")
# How many files in memory an array stands on.
ARRAYS = {"raid0": 2, "raid1": 2, "raid10": 4}
# Which modules of the kernel a layer wants.
MODULES = {
    "linear": "dm_mod",
    "crypt": "dm_crypt",
    "thin": "dm_thin_pool",
    "raid0": "raid0",
    "raid1": "raid1",
    "raid10": "raid10",
}
_LEAST, _MOST = 1, 3
_ONCE = ("thin", "reflink")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A filesystem on layers, the highest first, on files in memory. `deleted` are bytes that are written and
    deleted before the trim; `offset` is where in the files the loop devices begin."""

    filesystem: str
    layers: tuple[str, ...]
    deleted: int
    offset: int

    def __str__(self) -> str:
        stack = " on ".join((self.filesystem, *self.layers, "memory"))
        return f"{stack} from {self.offset} on, {self.deleted >> 20} MiB deleted"


def recipe(seed: int, usable: Collection[str]) -> Recipe:
    """The stack of a seed, of layers that this machine has."""
    chance = random.Random(seed)
    count = chance.randint(_LEAST, _MOST)
    layers: list[str] = []
    for _ in range(count):
        # Files that are shared need room for all of their blocks again.
        choices = [name for name in LAYERS if name in usable and not (name in _ONCE and name in layers)]
        layers.append(chance.choice(sorted(choices)))
    arrays = sorted(name for name in ARRAYS if name in usable)
    if arrays and chance.random() < 0.5:
        layers[-1] = chance.choice(arrays)
    offset = chance.choice((0, 0, 512, 2048, 7680, MIB))
    return Recipe(chance.choice(FILESYSTEMS), tuple(layers), chance.choice((0, 4, 16)) * MIB, offset)


def smaller(one: Recipe) -> Iterator[Recipe]:
    """Stacks that have one thing less."""
    for at in range(len(one.layers)):
        yield replace(one, layers=one.layers[:at] + one.layers[at + 1 :])
    if one.filesystem != "ext4":
        yield replace(one, filesystem="ext4")
    if one.deleted:
        yield replace(one, deleted=0)
    if one.offset:
        yield replace(one, offset=0)
