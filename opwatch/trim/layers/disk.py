"""Disks of any driver: SCSI and ATA, virtual disks, and logical drives of RAID controllers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opwatch.trim.layers.base import LayerKind, LayerTrim, ProofDepth, RetentionCause
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.facts import LayerFacts
from opwatch.trim.stack.layers import Layer, Stack

# Drivers of controllers with logical drives.
_RAID_DRIVERS = ("megaraid_sas", "smartpqi", "hpsa", "aacraid", "mpt3sas", "mpi3mr", "arcmsr", "3w-sas")
# Those whose logical drives may combine several disks: the others also attach single disks.
_LOGICAL_DRIVERS = ("megaraid_sas", "smartpqi", "hpsa", "aacraid", "arcmsr", "3w-sas")
_SENDING_MODES = ("unmap", "writesame_16", "writesame_10", "writesame_zero")
# Transports to a target on another machine.
_REMOTE_TRANSPORTS = ("iscsi", "fc", "network")
# Drivers stacked on other disks, by device name prefix.
_THREADED_DISKS = ("drbd",)
# libata's limit per command: 64 ranges of 65,535 sectors.
_ATA_LIMIT = 64 * 65_535 * 512


@dataclass(frozen=True, slots=True)
class DiskFacts(LayerFacts):
    """Facts of a disk and its driver. `virtual` is True or None."""

    model: str | None = None
    vendor: str | None = None
    transport: str | None = None
    drivers: tuple[str, ...] | None = None
    virtual: bool | None = None
    provisioning_mode: str | None = None
    thin_provisioning: bool | None = None
    ata_trim: str | None = None
    virtio_discard: bool | None = None
    unpartitioned_bytes: int | None = None
    nuse_blocks: int | None = None
    dataset_management: bool | None = None
    deallocate_bytes: int | None = None


class Disk(LayerKind):
    """A disk."""

    facts = DiskFacts
    is_inline = True

    def is_switched_off(self, layer: Layer) -> bool:
        return layer.facts_as(DiskFacts).provisioning_mode != "disabled"

    def explain_zero_limit(self, stack: Stack, layer: Layer, observed: str) -> Reason:
        at, facts = layer.device, layer.facts_as(DiskFacts)
        mode = facts.provisioning_mode
        driver = next((name for name in facts.drivers or () if name in _RAID_DRIVERS), None)
        if mode:
            observed += f", provisioning_mode is {mode}"
        if facts.ata_trim in ("unsupported", "forced_unsupported"):
            return make_reason("ata-no-trim", at, f"{observed}, libata reports {facts.ata_trim}", device=at)
        if mode == "disabled":
            return make_reason("scsi-disabled", at, observed, device=at)
        if facts.virtual:
            if facts.virtio_discard is False:
                observed += ", virtio-blk lacks the feature discard"
            return make_reason("virtual-no-discards", at, observed, device=at)
        if mode == "full" and driver:
            return make_reason("raid-controller", at, f"{observed}, driver {driver}", device=at)
        if mode == "full":
            return make_reason("scsi-full", at, observed, device=at)
        return self.explain_no_support(layer, observed)

    def explain_no_support(self, layer: Layer, observed: str) -> Reason:
        """Return why a physical drive has no discards."""
        return make_reason("device-no-discards", layer.device, observed, device=layer.device)

    def find_hints(self, stack: Stack, layer: Layer) -> Iterator[Reason]:
        at, facts = layer.device, layer.facts_as(DiskFacts)
        mode, trim = facts.provisioning_mode, facts.ata_trim
        mounted = {"mount": stack.filesystem.point} if stack.filesystem else {}
        if mode in _SENDING_MODES and facts.thin_provisioning is False and trim is None:
            observed = f"provisioning_mode is {mode}, thin_provisioning 0"
            yield make_reason("scsi-forced", at, observed, **mounted)
        if trim == "forced_unqueued":
            yield make_reason("ata-unqueued-trim", at, "libata reports forced_unqueued", device=at)
        yield from self.find_drive_hints(layer)
        if layer.limits.can_discard and facts.virtual:
            yield make_reason("host-may-drop", at, f"it is a {self.describe(layer)}", device=at)
        elif layer.limits.can_discard:
            yield make_reason("advisory", at, f"it is a {self.describe(layer)}", **mounted)

    def find_drive_hints(self, layer: Layer) -> Iterator[Reason]:
        """Yield the causes in its type of drive."""
        return iter(())

    def find_doubts(self, layer: Layer) -> Iterator[str]:
        if layer.facts_as(DiskFacts).vendor == "LIO-ORG" and layer.limits.can_discard:
            yield (
                f"whether the target of {layer.device} (Linux LIO) passes discards on: its backing device "
                "may refuse them, and after the first refusal Linux sends none until the disk is added again"
            )

    def is_threaded(self, layer: Layer) -> bool:
        return is_threaded(layer)

    def explain_failure(
        self, trim: LayerTrim, status: int, observed: str, kept: Sequence[RetentionCause]
    ) -> Iterator[Reason]:
        if mode := trim.later.facts_as(DiskFacts).provisioning_mode:
            code, at = "scsi-disabled" if mode == "disabled" else "scsi-refused", trim.layer.device
            words = f"{observed}; provisioning_mode {mode}"
            yield make_reason(code, at, words, trim.arrived_bytes, device=at)

    def explain_splits(self, layer: Layer, count: int) -> Iterator[Reason]:
        if count and layer.facts_as(DiskFacts).ata_trim and layer.limits.max_bytes == _ATA_LIMIT:
            yield make_reason("ata-splits", layer.device, f"longer discards were split {count} times")

    def judge_proof(self, layer: Layer, *, has_map: bool) -> ProofDepth:
        name, facts = layer.device, layer.facts_as(DiskFacts)
        if facts.virtual:
            return ProofDepth(
                False, f"the virtual disk {name}", "what its host frees is not visible from here"
            )
        if set(facts.drivers or ()) & set(_LOGICAL_DRIVERS):
            return ProofDepth(False, f"{name} of a RAID controller", "its disks are not visible from here")
        if facts.transport in _REMOTE_TRANSPORTS or (facts.transport or "").startswith("nvme-"):
            return ProofDepth(
                False, f"the logical unit {name}", "what its target frees is not visible from here"
            )
        return super().judge_proof(layer, has_map=has_map)

    def explain_storage_below(self, layer: Layer) -> list[Reason] | None:
        if not layer.facts_as(DiskFacts).virtual:
            return None
        observed = "a virtual disk: its host decides, which the guest cannot see"
        return [make_reason("host-may-drop", layer.device, observed, device=layer.device)]

    def describe(self, layer: Layer) -> str:
        facts = layer.facts_as(DiskFacts)
        return facts.model or f"{facts.transport or 'block'} disk"


def is_threaded(layer: Layer) -> bool:
    """Return True if a kernel thread may issue the discards below a disk, or below its partition."""
    return layer.device.startswith(_THREADED_DISKS)
