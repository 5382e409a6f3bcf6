"""Loop devices, including the block devices of simulated drives. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.trim.layers.base import LayerKind, LayerTrim, ProofDepth, RetentionCause
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import LayerFacts
from opwatch.trim.stack.layers import Kind, Layer, Stack

# On these filesystems, hole punching depends on the storage below.
_DOUBTFUL_FILES = ("overlay", "fuse", "nfs", "cifs", "smb", "9p", "virtiofs", "ceph")
_MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
_NOT_SUPPORTED = 1


@dataclass(frozen=True, slots=True)
class LoopFacts(LayerFacts):
    """Facts of a loop device. `simulated_drive` and `backing_is_device` are True or None. `offset_bytes` is
    the device's offset in the file; None if zero."""

    backing_file: str | None = None
    simulated_drive: bool | None = None
    backing_is_device: bool | None = None
    backing_filesystem: str | None = None
    backing_mount: str | None = None
    offset_bytes: int | None = None


class Loop(LayerKind):
    """A loop device: a discard punches a hole into its file, or writes zeroes to its block device."""

    facts = LoopFacts
    lower_operation = "write_zeroes"

    def find_granule(self, layer: Layer) -> tuple[int, int] | None:
        loop = layer.facts_as(LoopFacts)
        if (loop.backing_filesystem or "").startswith("nfs"):
            return None  # its granularity is the transfer size; the server frees its own blocks
        granule, offset = layer.limits.find_granule(), loop.offset_bytes
        # Blocks are counted in the file. A loop device may start in mid-block, but reports no alignment.
        return (granule[0], -offset % granule[0]) if granule and offset else granule

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        loop = layer.facts_as(LoopFacts)
        file, kind = loop.backing_file or "no file", loop.backing_filesystem
        observed += f", its file is {file}" + (f" on {kind}" if kind else "")
        return make_reason("loop-no-punch", layer.device, observed, file=file)

    def find_retentions(self, stack: Stack, layer: Layer) -> list[RetentionCause]:
        if not self.is_zeroing(layer):
            return super().find_retentions(stack, layer)
        file = layer.facts_as(LoopFacts).backing_file or layer.device
        words = f"it uses {file}, which receives zero writes instead of discards"
        return [RetentionCause("loop-on-device", layer.device, words, {"file": file})]

    def find_hints(self, stack: Stack, layer: Layer) -> Iterator[Reason]:
        loop = layer.facts_as(LoopFacts)
        if not layer.limits.can_discard:
            return
        if loop.simulated_drive:
            mounted = {"mount": stack.filesystem.point} if stack.filesystem else {}
            yield make_reason("advisory", layer.device, "it is a simulated drive", **mounted)
        elif not self.is_zeroing(layer) and loop.backing_filesystem not in _MEMORY_FILESYSTEMS:
            file, where = loop.backing_file or "", loop.backing_mount
            observed = f"its file is {file}" + (f" on {loop.backing_filesystem}" if where else "")
            mounted = {"mount": where} if where else {}
            yield make_reason("loop-frees-file", layer.device, observed, file=file, **mounted)

    def find_doubts(self, layer: Layer) -> Iterator[str]:
        kind = layer.facts_as(LoopFacts).backing_filesystem or ""
        if layer.limits.can_discard and kind.startswith(_DOUBTFUL_FILES) and has_plain_file(layer):
            yield f"whether {kind} can free parts of {layer.device}'s file: only a trim shows it"

    def is_zeroing(self, layer: Layer) -> bool:
        return layer.facts_as(LoopFacts).backing_is_device is True

    def explain_rounding(self, layer: Layer, top: str, observed: str, lost: int) -> Reason:
        if not has_plain_file(layer):
            return super().explain_rounding(layer, top, observed, lost)
        file = layer.facts_as(LoopFacts).backing_file or "its file"
        return make_reason("loop-partial-block", top, observed, lost, file=file)

    def is_threaded(self, layer: Layer) -> bool:
        return True

    def count_passed_bytes(self, trim: LayerTrim) -> int:
        return 0  # no discards arrive below: they become zero writes

    def explain_failure(
        self, trim: LayerTrim, status: int, observed: str, kept: Sequence[RetentionCause]
    ) -> Iterator[Reason]:
        layer = trim.layer
        file = layer.facts_as(LoopFacts).backing_file or layer.device
        code = "loop-no-punch" if status == _NOT_SUPPORTED else "loop-file-sealed"
        yield make_reason(code, layer.device, observed, trim.arrived_bytes, file=file)

    def describe_out(self, layer: Layer, copies: int) -> str | None:
        return "out is zero writes"

    def judge_proof(self, layer: Layer, *, has_map: bool) -> ProofDepth:
        loop = layer.facts_as(LoopFacts)
        if loop.simulated_drive:
            return super().judge_proof(layer, has_map=has_map)
        if not has_map or not loop.backing_filesystem:
            return ProofDepth(False, f"loop device {layer.device}", "its file is not visible from here")
        if loop.backing_filesystem in _MEMORY_FILESYSTEMS:
            return ProofDepth(True, f"the file {loop.backing_file} in memory")
        mounted = loop.backing_mount or "its filesystem"
        return ProofDepth(
            False, f"the file {loop.backing_file}", f"the storage below is trimmed with {mounted}"
        )

    def explain_storage_below(self, layer: Layer) -> list[Reason] | None:
        loop = layer.facts_as(LoopFacts)
        if loop.simulated_drive:
            return None
        if loop.backing_filesystem in (None, *_MEMORY_FILESYSTEMS):
            return []
        blanks = {"mount": loop.backing_mount or "/", "file": loop.backing_file or layer.device}
        observed = f"its file is on {loop.backing_filesystem}"
        return [make_reason("loop-frees-file", layer.device, observed, None, **blanks)]

    def describe(self, layer: Layer) -> str | None:
        return layer.label or layer.facts_as(LoopFacts).backing_file


def has_plain_file(layer: Layer) -> bool:
    """Return True for a loop device that is not a simulated drive."""
    return layer.kind is Kind.LOOP and not layer.facts_as(LoopFacts).simulated_drive
