"""The Protocol of a kind of layer: what check, audit, ledger and verdicts ask of it. Pure.

The defaults describe a device that passes every discard to the layers below, unchanged and at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

from opwatch.trim.layers.arrays import MdFacts
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import LayerFacts
from opwatch.trim.stack.layers import Layer, Stack


@dataclass(frozen=True, slots=True)
class RetentionCause:
    """A cause for which a layer does not pass discards on. `words` are the evidence. `whole` is true if the
    layer keeps every byte, `fails` if the discard ends with an error, `varies` if the amount cannot be
    predicted."""

    code: str
    where: str
    words: str
    blanks: Mapping[str, str] = field(default_factory=dict)
    whole: bool = True
    fails: bool = False
    varies: bool = False

    def make_predicted_reason(self) -> Reason:
        """Return the reason to report before a trim."""
        return make_reason(self.code, self.where, self.words, None, **self.blanks)

    def make_observed_reason(self, lost_bytes: int) -> Reason:
        """Return the reason to report after a trim in which the layer kept `lost_bytes`."""
        return make_reason(
            self.code,
            self.where,
            f"{lost_bytes} B were not passed on: {self.words}",
            lost_bytes,
            **self.blanks,
        )


class MappedPart(NamedTuple):
    """Part of a range on the device below. `device` is None if the range is not followed further down, and
    `stopped` says why; None at a disk."""

    device: str | None
    extents: Extents
    encrypted: bool = False
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class LayerTrim:
    """A layer in a trim: the stack before and after, the bytes that arrived (and those in whole granules),
    and the bytes passed to each lower device."""

    before: Stack
    after: Stack
    layer: Layer
    arrived_bytes: int
    granule_bytes: int
    members: Mapping[str, int]

    @property
    def later(self) -> Layer:
        """The layer after the trim, or before the trim if it has disappeared."""
        return self.find_later(self.layer)

    def find_later(self, layer: Layer) -> Layer:
        """Return another layer's state after the trim, or before the trim if it has disappeared."""
        return self.after.find_layer(layer.device) or layer


class ProofDepth(NamedTuple):
    """How far down a disk's own evidence proves a trim. `beyond` says what remains unknown below."""

    is_proven: bool
    down_to: str
    beyond: str | None = None


class LayerKind(Protocol):
    """A kind of layer. In all methods, `layer` is a layer of this kind in `stack`."""

    facts: ClassVar[type[LayerFacts]] = LayerFacts
    # Events of its bios have the number of the partition and the name of the disk.
    is_part_of_disk: ClassVar[bool] = False
    # Discard units are those of the layer below.
    has_lower_granules: ClassVar[bool] = False
    # Discards are submitted in the sender's context, and end before a waiting caller returns.
    is_inline: ClassVar[bool] = False
    # Paths below have no device number, and get bios by remapping (native NVMe multipath).
    has_hidden_paths: ClassVar[bool] = False
    # Requests are cloned, so that no bio event precedes them on the paths.
    clones_requests: ClassVar[bool] = False
    # False if a layer below reports the same retentions: a thin volume's pool.
    has_own_retentions: ClassVar[bool] = True
    # Reads of freed blocks do not reach a lower device.
    answers_freed_reads: ClassVar[bool] = False
    # Operation sent down for a discard.
    lower_operation: ClassVar[str] = "discard"

    # --- lower devices and mapping ---

    def find_receivers(self, stack: Stack, layer: Layer) -> list[Layer]:
        """Return the lower layers that receive the layer's discards."""
        return stack.find_lower_layers(layer)

    def find_granule(self, layer: Layer) -> tuple[int, int] | None:
        """Return (bytes, offset) of the layer's discard units; None if unknown."""
        return layer.limits.find_granule()

    def map_range(
        self, stack: Stack, layer: Layer, extents: Extents, *, copies: bool
    ) -> Iterator[MappedPart]:
        """Yield the parts of a range on the devices below, as far as the mapping is exact. With `copies`,
        include every copy."""
        yield MappedPart(None, extents)

    def is_cache(self, layer: Layer) -> bool:
        """Return True if reads may come from a cache that keeps discarded data."""
        return False

    def list_data_starts(self, stack: Stack, layer: Layer) -> list[tuple[Layer, int]] | None:
        """Return the lower devices whose limits are stacked, each with the byte offset of the data there;
        None if the layer has limits of its own."""
        return None

    def list_arrays(self, stack: Stack, layer: Layer) -> Iterator[tuple[MdFacts, Sequence[str]]]:
        """Yield arrays in md's terms, each with the names of its members."""
        return iter(())

    def list_borders(self, layer: Layer) -> Iterator[int]:
        """Yield byte offsets, or their multiples, at which the mapping to lower layers may change."""
        return iter(())

    def simplify(self, stack: Stack, layer: Layer, copy: int) -> Layer:
        """Return the layer with a simpler mapping and the same ends of ranges; only far copy `copy`."""
        return layer

    # --- before a trim ---

    def is_switched_off(self, layer: Layer) -> bool:
        """Return True if a hardware limit above 0 shows that the limit was set to 0 later."""
        return True

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        """Return why the layer accepts no discards although all layers below do."""
        return make_reason("device-no-discards", layer.device, observed, device=layer.device)

    def find_retentions(self, stack: Stack, layer: Layer) -> list[RetentionCause]:
        """Return every cause for which the layer keeps discards, as far as table and status show."""
        return list(self.find_lower_retentions(stack, layer))

    def find_lower_retentions(self, stack: Stack, layer: Layer) -> Iterator[RetentionCause]:
        """Yield devices below without discard support, although the layer still offers discards. The kernel
        ends such discards before any event: with an error in 6.1, silently in 6.12."""
        if not layer.limits.can_discard:
            return
        receivers = self.find_receivers(stack, layer)
        without = [lower.device for lower in receivers if lower.limits.can_discard is False]
        for name in without:
            words = f"discard_max_bytes is 0 on {name} and not on {layer.device}"
            if len(without) == len(receivers):
                yield RetentionCause("limit-zero", name, words, {"device": name}, fails=True)
            else:
                yield RetentionCause(
                    "member-no-discards", name, words, {"disk": name}, whole=False, fails=True
                )

    def find_lock(self, layer: Layer) -> Reason | None:
        """Return why the device refuses every command that changes data; None if it does not."""
        return None

    def find_hints(self, stack: Stack, layer: Layer) -> Iterator[Reason]:
        """Yield the other causes that its facts show."""
        return iter(())

    def find_doubts(self, layer: Layer) -> Iterator[str]:
        """Yield the open questions about the layer, as text."""
        return iter(())

    def is_zeroing(self, layer: Layer) -> bool:
        """Return True if the layer sends zero writes down, which may or may not free space."""
        return False

    def describe_scatter(self, layer: Layer) -> str | None:
        """Return the open question of a layer that scatters its data over the devices below, or None."""
        return None

    def find_chunk_bytes(self, layer: Layer) -> int | None:
        """Return the size of the chunks that the layer allocates and frees; None without chunks."""
        return None

    def find_mapped_bytes(self, layer: Layer) -> int | None:
        """Return the bytes with storage behind them; None if unknown or not thin."""
        return None

    def explain_rounding(self, layer: Layer, top: str, observed: str, lost: int) -> Reason:
        """Return the reason for bytes outside whole discard units, in a trim of device `top`."""
        return make_reason("device-rounds", top, observed, lost, device=top)

    # --- after a trim ---

    def is_threaded(self, layer: Layer) -> bool:
        """Return True if a kernel thread may issue the discards below the layer."""
        return False

    def is_unit_based(self, layer: Layer) -> bool:
        """Return True if the layer passes on only whole chunks or stripes."""
        return False

    def count_copies(self, layer: Layer, members: int) -> int:
        """Return the number of devices that hold each byte."""
        return 1

    def count_passed_bytes(self, trim: LayerTrim) -> int:
        """Return the bytes of the layer's own data passed to lower layers, without parity."""
        return sum(trim.members.values())

    def explain_loss(self, trim: LayerTrim, lost: int) -> Iterator[Reason]:
        """Yield why the layer passed on `lost` bytes less than it accepted, apart from retentions."""
        return iter(())

    def explain_failure(
        self, trim: LayerTrim, status: int, observed: str, kept: Sequence[RetentionCause]
    ) -> Iterator[Reason]:
        """Yield why `trim.arrived_bytes` completed with an error status. `kept` are the retentions."""
        return iter(())

    def explain_splits(self, layer: Layer, count: int) -> Iterator[Reason]:
        """Yield a harmless reason for split discards."""
        return iter(())

    def hides_granule(self, layer: Layer) -> bool:
        """Return True if the drive's own discard units are larger than the kernel's."""
        return False

    def describe_out(self, layer: Layer, copies: int) -> str | None:
        """Describe the ledger's bytes passed on; None for plain discards."""
        return f"{copies} copies" if copies > 1 else None

    def judge_proof(self, layer: Layer, *, has_map: bool) -> ProofDepth:
        """Return how far down a disk's own evidence proves a trim. `has_map`: a map shows the sentinels."""
        return ProofDepth(is_proven=True, down_to=f"the drive {layer.device}")

    def explain_storage_below(self, layer: Layer) -> list[Reason] | None:
        """Return what remains unknown about storage below a disk; None for a physical drive."""
        return None

    # --- output ---

    def describe(self, layer: Layer) -> str | None:
        """Return a name or model for users, or None."""
        return layer.label
