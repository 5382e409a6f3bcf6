"""What a discard passes on its way from a filesystem to the disks, and what each layer says of discards.

The types; opwatch.collectors.stack.layers fills them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from opwatch.trim.stack.limits import QueueLimits

if TYPE_CHECKING:
    from opwatch.trim.stack.dmtable import DmTarget

Fact = str | int | bool


class Kind(enum.StrEnum):
    """What a layer does with a discard. Device-mapper targets have their own word in Layer.target."""

    PARTITION = "partition"
    CRYPT = "crypt"
    THIN = "thin"
    THIN_POOL = "thin-pool"
    DM = "dm"
    MD = "md"
    LOOP = "loop"
    MULTIPATH = "multipath"
    DISK = "disk"


@dataclass(frozen=True, slots=True)
class Layer:
    """One block device. `facts` are those of its kind, by the names in docs/method-trim.md; a fact that could
    not be read is in `unknown` with the reason. `table` is that of device mapper, where it may be read."""

    device: str
    dev: str
    kind: Kind
    size_bytes: int
    limits: QueueLimits
    read_only: bool | None = None
    target: str | None = None
    label: str | None = None
    below: tuple[str, ...] = ()
    table: tuple[DmTarget, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def text(self, fact: str) -> str | None:
        """The fact as text, None when it is not known."""
        value = self.facts.get(fact)
        return None if value is None else str(value)

    def number(self, fact: str) -> int | None:
        """The fact as a number, None when it is not known or no number."""
        value = self.facts.get(fact)
        return value if isinstance(value, int) else None

    @property
    def is_array(self) -> bool:
        """Whether it is md's, or a RAID of device mapper, which is md with another name."""
        return self.kind is Kind.MD or "level" in self.facts

    @property
    def granule(self) -> tuple[int, int] | None:
        """(bytes, offset) of what it frees as a whole, None when it tells none."""
        return self.limits.granule(self.number("deallocate_bytes"))


@dataclass(frozen=True, slots=True)
class Filesystem:
    """A mounted filesystem. `devices` are the kernel names of what it lies on; none for one without."""

    point: str
    kind: str
    source: str
    dev: str
    options: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stack:
    """A filesystem, or none for a bare device, and every layer below it, each once, from the top down."""

    filesystem: Filesystem | None
    layers: tuple[Layer, ...]

    def layer(self, device: str) -> Layer | None:
        """The layer of this kernel name, None when there is none."""
        return next((each for each in self.layers if each.device == device), None)

    def below(self, layer: Layer) -> list[Layer]:
        """The layers that it stands on directly."""
        return [found for name in layer.below if (found := self.layer(name))]

    def tops(self) -> list[Layer]:
        """The layers that the filesystem, or the caller, sends its discards to."""
        if self.filesystem:
            return [found for name in self.filesystem.devices if (found := self.layer(name))]
        return list(self.layers[:1])

    def leaves(self) -> list[Layer]:
        """The layers that stand on no other."""
        return [each for each in self.layers if not each.below]


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that was different after a trim."""

    device: str
    fact: str
    before: Fact | None
    after: Fact | None


def _facts(stack: Stack) -> Iterator[tuple[tuple[str, str], Fact | None]]:
    for layer in stack.layers:
        for name, value in {**asdict(layer.limits), "read_only": layer.read_only, **layer.facts}.items():
            yield (layer.device, name), value
    if stack.filesystem:
        for name, value in stack.filesystem.facts.items():
            yield (stack.filesystem.point, name), value


def changes(before: Stack, after: Stack) -> list[FactChange]:
    """What differs between two looks at a stack, such as a provisioning mode that flipped. What could not be
    read in one of them is no change."""
    now = dict(_facts(after))
    found = []
    for (device, fact), value in _facts(before):
        later = now.get((device, fact))
        if value is not None and later is not None and value != later:
            found.append(FactChange(device, fact, value, later))
    return found


def document(stack: Stack) -> dict[str, Any]:
    """For --json."""
    filesystem = None
    if stack.filesystem:
        filesystem = asdict(stack.filesystem)
    return {"filesystem": filesystem, "layers": [asdict(layer) for layer in stack.layers]}
