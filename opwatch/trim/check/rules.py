"""Find the causes in a single layer from its facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.discard_path import RAID456, find_retentions, find_unsupported_layers, is_zeroing
from opwatch.trim.stack.facts import (
    DiskFacts,
    LoopFacts,
    MdFacts,
    ThinFacts,
    ThinPoolFacts,
    Unread,
    stripe_bytes,
)
from opwatch.trim.stack.layers import Kind, Layer, Stack
from opwatch.units import format_size

# Drivers of controllers with logical drives.
_RAID_DRIVERS = ("megaraid_sas", "smartpqi", "hpsa", "aacraid", "mpt3sas", "mpi3mr", "arcmsr", "3w-sas")
_SENDING_MODES = ("unmap", "writesame_16", "writesame_10", "writesame_zero")
# On these filesystems, hole punching depends on the storage below.
_DOUBTFUL_FILES = ("overlay", "fuse", "nfs", "cifs", "smb", "9p", "virtiofs", "ceph")
MEMORY_DISKS = ("zram", "ram", "brd", "pmem")


def explain_zero_limit(stack: Stack, layer: Layer) -> Reason:
    """Return why a layer accepts no discards although all layers below it do."""
    at, observed = layer.device, f"discard_max_bytes of {layer.device} is 0"
    # After a failed discard, a driver clears both limits in Linux 6.1, but only discard_max_bytes in 6.12.
    if layer.limits.max_hw_bytes and layer.facts_as(DiskFacts).provisioning_mode != "disabled":
        observed += f", discard_max_hw_bytes {format_size(layer.limits.max_hw_bytes)}"
        return make_reason("limit-switched-off", at, observed, device=at)
    names = {"label": layer.label or at, "device": at}
    if layer.kind is Kind.CRYPT and not any("allow_discards" in target.flags for target in layer.table):
        observed += (
            ", and the table has no allow_discards" if layer.table else " above devices that accept them"
        )
        return make_reason("crypt-no-discards", at, observed, **names)
    if layer.kind in (Kind.THIN, Kind.THIN_POOL):
        # A pool without discard passdown has a limit of 0 (6.1, 6.12).
        if kept := find_retentions(stack, layer):
            return kept[0].make_predicted_reason()
        pool = next(
            (lower for lower in (layer, *stack.find_lower_layers(layer)) if lower.kind is Kind.THIN_POOL),
            layer,
        )
        return make_reason("thin-ignores-discard", at, observed, pool=pool.label or pool.device)
    if layer.kind is Kind.MD and layer.level in RAID456:
        safely = layer.facts_as(MdFacts).handles_discard_safely
        observed += "" if safely is None else f", devices_handle_discard_safely is {'NY'[safely]}"
        return make_reason("raid456-not-safe", at, observed, device=at)
    if layer.kind is Kind.LOOP:
        loop = layer.facts_as(LoopFacts)
        file, kind = loop.backing_file or "no file", loop.backing_filesystem
        observed += f", its file is {file}" + (f" on {kind}" if kind else "")
        return make_reason("loop-no-punch", at, observed, file=file)
    if layer.kind in (Kind.DM, Kind.CRYPT):
        return _explain_target(layer, observed, names)
    return _explain_disk(layer, observed)


def _explain_target(layer: Layer, observed: str, names: dict[str, str]) -> Reason:
    target = layer.target or ""
    observed += f", target {target}" if target else " above devices that accept them"
    kind = layer.table[0].arguments[:1] if target == "raid" and layer.table else ()
    if "".join(kind).startswith(RAID456):
        return make_reason("raid456-not-safe", layer.device, f"{observed} {kind[0]}", device=names["label"])
    if "integrity" in target:
        code = "integrity-no-discards"
    elif "verity" in target:
        code = "verity-read-only"
    elif "snapshot" in target:
        code = "snapshot-swallows"
    elif target in ("cache", "clone", "era"):
        code = "cache-no-passdown"
    else:
        code = "target-no-discards"
    return make_reason(code, layer.device, observed, **names)


def _explain_disk(layer: Layer, observed: str) -> Reason:
    at, disk = layer.device, layer.facts_as(DiskFacts)
    mode = disk.provisioning_mode
    driver = next((name for name in disk.drivers or () if name in _RAID_DRIVERS), None)
    if mode:
        observed += f", provisioning_mode is {mode}"
    if disk.ata_trim in ("unsupported", "forced_unsupported"):
        return make_reason("ata-no-trim", at, f"{observed}, libata reports {disk.ata_trim}", device=at)
    if mode == "disabled":
        return make_reason("scsi-disabled", at, observed, device=at)
    if disk.virtual:
        if disk.virtio_discard is False:
            observed += ", virtio-blk lacks the feature discard"
        return make_reason("virtual-no-discards", at, observed, device=at)
    if mode == "full" and driver:
        return make_reason("raid-controller", at, f"{observed}, driver {driver}", device=at)
    if mode == "full":
        return make_reason("scsi-full", at, observed, device=at)
    if at.startswith("nvme") and disk.dataset_management is not True:
        return make_reason("nvme-no-dsm", at, observed, device=at)
    return make_reason("device-no-discards", at, observed, device=at)


def _find_limit_reasons(stack: Stack, layer: Layer) -> Iterator[Reason]:
    """Yield the causes of zero or lowered discard limits."""
    without = find_unsupported_layers(stack, layer)
    if layer.kind is Kind.PARTITION or layer.limits.can_discard is None:
        return  # a partition has the limits of its disk
    if layer.limits.can_discard is False:
        if not without:
            yield explain_zero_limit(stack, layer)
        return
    for lower in without:
        if layer.is_array:
            observed = f"discard_max_bytes is 0 on {lower.device} and not on {layer.device}"
            yield make_reason("member-no-discards", layer.device, observed, disk=lower.device)
    most, hardware = layer.limits.max_bytes or 0, layer.limits.max_hw_bytes or 0
    # A difference below the granularity is the kernel's own rounding.
    if 0 < most < hardware - (layer.limits.granularity or 0) and not layer.below:
        observed = f"discard_max_bytes is {most}, discard_max_hw_bytes {hardware}"
        yield make_reason("limit-lowered", layer.device, observed, device=layer.device)


def _find_thin_reasons(stack: Stack, layer: Layer) -> Iterator[Reason]:
    mapped = layer.facts_as(ThinFacts).mapped_bytes
    if mapped is not None and mapped < layer.size_bytes:
        observed = f"{format_size(mapped)} of {format_size(layer.size_bytes)} is mapped"
        yield make_reason("thin-not-mapped", layer.device, observed)


def _find_md_reasons(stack: Stack, layer: Layer) -> Iterator[Reason]:
    if layer.level in RAID456 and layer.limits.can_discard:
        stripe = stripe_bytes(layer.facts_as(MdFacts))
        observed = f"stripes of {format_size(stripe)}" if stripe else "its stripe size is unknown"
        reshape = layer.facts_as(MdFacts).reshape_position
        if reshape not in (None, "none"):
            observed += f", a reshape is at {reshape}"
        yield make_reason("raid456-partial-stripe", layer.device, observed)


def _find_loop_reasons(stack: Stack, layer: Layer) -> Iterator[Reason]:
    if not layer.limits.can_discard:
        return
    loop = layer.facts_as(LoopFacts)
    if loop.simulated_drive:
        yield make_reason("advisory", layer.device, "it is a simulated drive", **_make_mount_blank(stack))
        return
    file, where = loop.backing_file or "", loop.backing_mount
    if is_zeroing(layer):
        return
    if loop.backing_filesystem in ("tmpfs", "ramfs"):
        return  # in memory, with no drive below
    observed = f"its file is {file}" + (f" on {loop.backing_filesystem}" if where else "")
    yield make_reason(
        "loop-frees-file", layer.device, observed, file=file, **({"mount": where} if where else {})
    )


def _find_disk_reasons(stack: Stack, layer: Layer) -> Iterator[Reason]:
    at, disk = layer.device, layer.facts_as(DiskFacts)
    mode, trim = disk.provisioning_mode, disk.ata_trim
    if mode in _SENDING_MODES and disk.thin_provisioning is False and trim is None:
        observed = f"provisioning_mode is {mode}, thin_provisioning 0"
        yield make_reason("scsi-forced", at, observed, **_make_mount_blank(stack))
    if trim == "forced_unqueued":
        yield make_reason("ata-unqueued-trim", at, "libata reports forced_unqueued", device=at)
    unit, granularity = disk.deallocate_bytes, layer.limits.granularity
    if unit and granularity and unit > granularity:
        observed = f"NPDG is {format_size(unit)}, discard_granularity {format_size(granularity)}"
        yield make_reason("nvme-granularity-hidden", at, observed, device=at)
    if layer.limits.can_discard and not layer.device.startswith(MEMORY_DISKS):
        if disk.virtual:
            yield make_reason("host-may-drop", at, f"it is a {describe_disk(layer)}", device=at)
        else:
            yield make_reason("advisory", at, f"it is a {describe_disk(layer)}", **_make_mount_blank(stack))


def _make_mount_blank(stack: Stack) -> dict[str, str]:
    """Return the mount point for use in remedies; empty for a bare device."""
    return {"mount": stack.filesystem.point} if stack.filesystem else {}


def describe_disk(layer: Layer) -> str:
    """Return a disk's model or, if unknown, its transport as text."""
    disk = layer.facts_as(DiskFacts)
    return disk.model or f"{disk.transport or 'block'} disk"


_RULES: dict[Kind, Callable[[Stack, Layer], Iterator[Reason]]] = {
    Kind.THIN: _find_thin_reasons,
    Kind.DM: _find_md_reasons,
    Kind.MD: _find_md_reasons,
    Kind.LOOP: _find_loop_reasons,
    Kind.DISK: _find_disk_reasons,
    Kind.MULTIPATH: _find_disk_reasons,
}


def find_reasons(stack: Stack, layer: Layer) -> list[Reason]:
    """Return a layer's own causes, without the causes in layers below it."""
    if layer.read_only and layer.device.startswith("nvme"):
        return [make_reason("nvme-locked", layer.device, f"{layer.device} is read-only", device=layer.device)]
    reasons = list(_find_limit_reasons(stack, layer))
    if layer.facts.bcache_discard is False:
        observed = f"bcache/discard of {layer.device} is 0"
        reasons.append(make_reason("bcache-discard-off", layer.device, observed, disk=layer.device))
    if layer.limits.can_discard is not False and layer.kind is not Kind.THIN:
        reasons += [kept.make_predicted_reason() for kept in find_retentions(stack, layer)]
    rule = _RULES.get(layer.kind)
    hidden_path = any(up.kind is Kind.MULTIPATH and layer.device in up.below for up in stack.layers)
    if rule and not hidden_path:
        known = {why.code for why in reasons}
        reasons += [why for why in rule(stack, layer) if why.code not in known]
    return reasons


def find_doubts(layer: Layer) -> list[str]:
    """Return the open questions about a layer, as text."""
    doubts = []
    if layer.kind is Kind.LOOP and layer.limits.can_discard:
        loop = layer.facts_as(LoopFacts)
        kind = loop.backing_filesystem or ""
        if kind.startswith(_DOUBTFUL_FILES) and not loop.simulated_drive:
            doubts.append(f"whether {kind} can free parts of {layer.device}'s file: only a trim shows it")
    if layer.kind is Kind.THIN_POOL and layer.facts_as(ThinPoolFacts).mode is None:
        why = layer.unknown.get(Unread.STATUS, "its status could not be read")
        doubts.append(f"whether the pool {layer.label or layer.device} passes discards on: {why}")
    if layer.kind is Kind.DM and layer.target is None and layer.limits.can_discard:
        why = layer.unknown.get(Unread.TABLE, "its table could not be read")
        doubts.append(f"what {layer.label or layer.device} does with discards: {why}")
    if layer.facts_as(DiskFacts).vendor == "LIO-ORG" and layer.limits.can_discard:
        doubts.append(
            f"whether the target of {layer.device} (Linux LIO) passes discards on: its backing device may "
            "refuse them, and after the first refusal Linux sends none until the disk is added again"
        )
    if layer.kind is Kind.THIN:
        doubts.append(f"how much of {layer.label or layer.device} snapshots share (thin-shared)")
    if Unread.DEALLOCATE_BYTES in layer.unknown and layer.limits.can_discard:
        why = layer.unknown[Unread.DEALLOCATE_BYTES]
        doubts.append(f"the unit in which {layer.device} deallocates: {why}")
    return doubts
