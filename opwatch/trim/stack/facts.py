"""Properties of each kind of layer beyond the queue limits; None if unknown.

Names and order are the same as in `layers[].facts` in --json, see docs/method-trim.md.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields

Fact = str | int | bool


class Unread(enum.StrEnum):
    """An unreadable property of a layer: a fact, or the table or status line with several facts."""

    TABLE = "table"
    STATUS = "status"
    MODE = "mode"
    MAPPED_BYTES = "mapped_bytes"
    LEVEL = "level"
    DEGRADED = "degraded"
    HANDLES_DISCARD_SAFELY = "handles_discard_safely"
    BACKING_FILE = "backing_file"
    BACKING_FILESYSTEM = "backing_filesystem"
    DATASET_MANAGEMENT = "dataset_management"
    DEALLOCATE_BYTES = "deallocate_bytes"


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """Facts of any layer. `bcache_discard`: bcache on the device passes discards on."""

    bcache_discard: bool | None = None


@dataclass(frozen=True, slots=True)
class DmFacts(LayerFacts):
    """Facts of a device-mapper device. `flags` are words about discards in the table, and in the status if
    the target can stop passing discards down; None if there are no such words."""

    flags: tuple[str, ...] | None = None

    def has_flag(self, word: str) -> bool:
        """Return True if the flags contain `word`."""
        return word in (self.flags or ())


@dataclass(frozen=True, slots=True)
class FilesystemFacts:
    """Facts of any filesystem. `zoned` is the zone model of the devices, if zoned."""

    zoned: str | None = None


# Facts of every kind of layer or filesystem follow the facts of the specific kind.
_COMMON_FACTS = ("bcache_discard", "zoned")


def find_known_facts(facts: LayerFacts | FilesystemFacts) -> dict[str, Fact]:
    """Return the known facts by name; tuples as words joined by spaces."""
    names = sorted((column.name for column in fields(facts)), key=lambda name: name in _COMMON_FACTS)
    values = {name: getattr(facts, name) for name in names}
    return {
        name: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in values.items()
        if value is not None
    }
