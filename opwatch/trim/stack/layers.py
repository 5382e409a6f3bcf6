"""What a discard passes on its way from a filesystem to the disks, and what each layer says of discards.

The types; opwatch.collectors.stack.layers fills them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

from opwatch.frozen import asdict, field, frozen
from opwatch.trim.stack.facts import (
    ArrayFacts,
    DiskFacts,
    Fact,
    FilesystemFacts,
    LayerFacts,
    LoopFacts,
    Unread,
    known,
    stripe_bytes,
)
from opwatch.trim.stack.limits import QueueLimits

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from opwatch.trim.stack.dmtable import DmTarget

    Facts = TypeVar("Facts", bound=LayerFacts)


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


@frozen
class Layer:
    """One block device. `facts` are those of its kind; what could not be read of it is in `unknown` with the
    reason. `table` is that of device mapper, where it may be read."""

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
    facts: LayerFacts = field(default_factory=LayerFacts)
    unknown: Mapping[Unread, str] = field(default_factory=dict)

    def facts_as(self, kind: type[Facts]) -> Facts:
        """Its facts as those of a kind of layer; a layer of another kind says nothing of these."""
        return self.facts if isinstance(self.facts, kind) else kind()

    @property
    def array(self) -> ArrayFacts | None:
        """Its facts where it is an array of md, or a RAID of device mapper, which is md with another name."""
        return self.facts if isinstance(self.facts, ArrayFacts) else None

    @property
    def is_array(self) -> bool:
        """Whether it is an array, although its facts may not be known."""
        return self.kind is Kind.MD or self.array is not None

    @property
    def level(self) -> str | None:
        """The RAID level of an array, None when it does not tell, and of what is none."""
        return self.array.level if self.array else None

    @property
    def granule(self) -> tuple[int, int] | None:
        """(bytes, offset) of what it frees as a whole, None when it tells none."""
        # The kernel says a power of two of an array with parity, and device mapper the chunk.
        if self.array and (stripe := stripe_bytes(self.array)):
            return stripe, 0
        loop = self.facts_as(LoopFacts)
        if (loop.backing_filesystem or "").startswith("nfs"):
            return None  # its granularity is the size of a transfer, and the server frees by its own blocks
        granule = self.limits.granule(self.facts_as(DiskFacts).deallocate_bytes)
        offset = loop.offset_bytes
        # Blocks are those of the file: a loop device may begin in the middle of one, and tells no alignment.
        return (granule[0], -offset % granule[0]) if granule and offset else granule

    def document(self) -> dict[str, Any]:
        """The document for --json."""
        return asdict(self) | {"facts": known(self.facts)}


@frozen
class Filesystem:
    """A mounted filesystem. `devices` are the kernel names of what it lies on; none for one without."""

    point: str
    kind: str
    source: str
    dev: str
    options: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    facts: FilesystemFacts = field(default_factory=FilesystemFacts)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The document for --json."""
        return asdict(self) | {"facts": known(self.facts)}


@frozen
class Stack:
    """A filesystem, or none for a bare device, and every layer below it, each once, from the top down."""

    filesystem: Filesystem | None
    layers: tuple[Layer, ...]

    def layer(self, device: str) -> Layer | None:
        """The layer of this kernel name, None when there is none."""
        return next((layer for layer in self.layers if layer.device == device), None)

    def below(self, layer: Layer) -> list[Layer]:
        """The layers that it stands on directly."""
        return [lower for name in layer.below if (lower := self.layer(name))]

    def tops(self) -> list[Layer]:
        """The layers that the filesystem, or the caller, sends its discards to."""
        if self.filesystem:
            return [top for name in self.filesystem.devices if (top := self.layer(name))]
        return list(self.layers[:1])

    def leaves(self) -> list[Layer]:
        """The layers that stand on no other."""
        return [layer for layer in self.layers if not layer.below]


@frozen
class FactChange:
    """A fact that was different after a trim."""

    device: str
    fact: str
    before: Fact | None
    after: Fact | None


def _facts(stack: Stack) -> Iterator[tuple[tuple[str, str], Fact | None]]:
    for layer in stack.layers:
        values = {**asdict(layer.limits), "read_only": layer.read_only, **known(layer.facts)}
        for name, value in values.items():
            yield (layer.device, name), value
    if stack.filesystem:
        for name, value in known(stack.filesystem.facts).items():
            yield (stack.filesystem.point, name), value


def changes(before: Stack, after: Stack) -> list[FactChange]:
    """What differs between two looks at a stack, such as a provisioning mode that flipped. What could not be
    read in one of them is no change."""
    now = dict(_facts(after))
    differences = []
    for (device, fact), value in _facts(before):
        later = now.get((device, fact))
        if value is not None and later is not None and value != later:
            differences.append(FactChange(device, fact, value, later))
    return differences


def document(stack: Stack) -> dict[str, Any]:
    """The document for --json."""
    filesystem = stack.filesystem.document() if stack.filesystem else None
    return {"filesystem": filesystem, "layers": [layer.document() for layer in stack.layers]}
