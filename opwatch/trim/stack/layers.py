"""The layers between a filesystem and its disks, with the discard properties of each layer.

opwatch.collectors.stack.layers fills in the types defined here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from opwatch.trim.stack.facts import Fact, FilesystemFacts, LayerFacts, Unread, find_known_facts
from opwatch.trim.stack.limits import QueueLimits

if TYPE_CHECKING:
    from opwatch.trim.stack.dmtable import DmTarget


Facts = TypeVar("Facts", bound=LayerFacts)


class Kind(enum.StrEnum):
    """Kind of a layer, by treatment of discards. Layer.target names the device-mapper target."""

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
    """A block device. The type of `facts` depends on its kind; `unknown` maps each unreadable property to the
    reason. `table` is the device-mapper table, if readable."""

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
        """Return the facts as type `kind`; if they are of another type, return `kind` with every fact
        unknown."""
        return self.facts if isinstance(self.facts, kind) else kind()

    def to_document(self) -> dict[str, Any]:
        """The document for --json."""
        return asdict(self) | {"facts": find_known_facts(self.facts)}


@dataclass(frozen=True, slots=True)
class Filesystem:
    """A mounted filesystem. `devices` are kernel names of block devices; empty for a filesystem without
    any."""

    point: str
    kind: str
    source: str
    dev: str
    options: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    facts: FilesystemFacts = field(default_factory=FilesystemFacts)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """The document for --json."""
        return asdict(self) | {"facts": find_known_facts(self.facts)}


@dataclass(frozen=True, slots=True)
class Stack:
    """A filesystem (None for a bare device) and the layers below, from the top down, each listed once."""

    filesystem: Filesystem | None
    layers: tuple[Layer, ...]

    def find_layer(self, device: str) -> Layer | None:
        """Return the layer with the given kernel name; None if the stack does not contain such a layer."""
        return next((layer for layer in self.layers if layer.device == device), None)

    def find_lower_layers(self, layer: Layer) -> list[Layer]:
        """Return the layers directly below `layer`."""
        return [lower for name in layer.below if (lower := self.find_layer(name))]

    def find_tops(self) -> list[Layer]:
        """Return the layers to which the filesystem, or the caller, sends discards."""
        if self.filesystem:
            return [top for name in self.filesystem.devices if (top := self.find_layer(name))]
        return list(self.layers[:1])

    def find_leaves(self) -> list[Layer]:
        """Return the layers at the bottom of the stack."""
        return [layer for layer in self.layers if not layer.below]


@dataclass(frozen=True, slots=True)
class FactChange:
    """A fact that differed after a trim."""

    device: str
    fact: str
    before: Fact | None
    after: Fact | None


def _iterate_facts(stack: Stack) -> Iterator[tuple[tuple[str, str], Fact | None]]:
    for layer in stack.layers:
        values = {**asdict(layer.limits), "read_only": layer.read_only, **find_known_facts(layer.facts)}
        for name, value in values.items():
            yield (layer.device, name), value
    if stack.filesystem:
        for name, value in find_known_facts(stack.filesystem.facts).items():
            yield (stack.filesystem.point, name), value


def find_changes(before: Stack, after: Stack) -> list[FactChange]:
    """Return the facts that differ between two readings of a stack, such as a changed provisioning mode. A
    fact missing from either reading is not a change."""
    now = dict(_iterate_facts(after))
    differences = []
    for (device, fact), value in _iterate_facts(before):
        later = now.get((device, fact))
        if value is not None and later is not None and value != later:
            differences.append(FactChange(device, fact, value, later))
    return differences


def build_document(stack: Stack) -> dict[str, Any]:
    """The document for --json."""
    filesystem = stack.filesystem.to_document() if stack.filesystem else None
    return {"filesystem": filesystem, "layers": [layer.to_document() for layer in stack.layers]}
