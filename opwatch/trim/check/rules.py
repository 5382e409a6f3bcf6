"""Find the causes in a single layer from its facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from opwatch.trim.stack.causes import Reason, reason
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
from opwatch.trim.stack.passage import RAID456, is_zeroing, keeps, without_discards
from opwatch.units import size

# Drivers of controllers with logical drives.
_RAID_DRIVERS = ("megaraid_sas", "smartpqi", "hpsa", "aacraid", "mpt3sas", "mpi3mr", "arcmsr", "3w-sas")
_SENDING_MODES = ("unmap", "writesame_16", "writesame_10", "writesame_zero")
# On these filesystems, hole punching depends on the storage below.
_DOUBTFUL_FILES = ("overlay", "fuse", "nfs", "cifs", "smb", "9p", "virtiofs", "ceph")
MEMORY = ("zram", "ram", "brd", "pmem")


def own_zero(stack: Stack, layer: Layer) -> Reason:
    """Return why a layer accepts no discards although all layers below it do."""
    at, observed = layer.device, f"discard_max_bytes of {layer.device} is 0"
    # After a failed discard, a driver clears both limits in Linux 6.1, but only discard_max_bytes in 6.12.
    if layer.limits.max_hw_bytes and layer.facts_as(DiskFacts).provisioning_mode != "disabled":
        observed += f", discard_max_hw_bytes {size(layer.limits.max_hw_bytes)}"
        return reason("limit-switched-off", at, observed, device=at)
    names = {"label": layer.label or at, "device": at}
    if layer.kind is Kind.CRYPT and not any("allow_discards" in target.flags for target in layer.table):
        observed += ", and the table has no allow_discards" if layer.table else " over devices that take them"
        return reason("crypt-no-discards", at, observed, **names)
    if layer.kind in (Kind.THIN, Kind.THIN_POOL):
        # A pool without discard passdown has a limit of 0 (6.1, 6.12).
        if kept := keeps(stack, layer):
            return kept[0].foretold()
        pool = next((lower for lower in (layer, *stack.below(layer)) if lower.kind is Kind.THIN_POOL), layer)
        return reason("thin-ignores-discard", at, observed, pool=pool.label or pool.device)
    if layer.kind is Kind.MD and layer.level in RAID456:
        safely = layer.facts_as(MdFacts).handles_discard_safely
        observed += "" if safely is None else f", devices_handle_discard_safely is {'NY'[safely]}"
        return reason("raid456-not-safe", at, observed, device=at)
    if layer.kind is Kind.LOOP:
        loop = layer.facts_as(LoopFacts)
        file, kind = loop.backing_file or "no file", loop.backing_filesystem
        observed += f", its file is {file}" + (f" on {kind}" if kind else "")
        return reason("loop-no-punch", at, observed, file=file)
    if layer.kind in (Kind.DM, Kind.CRYPT):
        return _target_zero(layer, observed, names)
    return _disk_zero(layer, observed)


def _target_zero(layer: Layer, observed: str, names: dict[str, str]) -> Reason:
    target = layer.target or ""
    observed += f", target {target}" if target else " over devices that take them"
    kind = layer.table[0].arguments[:1] if target == "raid" and layer.table else ()
    if "".join(kind).startswith(RAID456):
        return reason("raid456-not-safe", layer.device, f"{observed} {kind[0]}", device=names["label"])
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
    return reason(code, layer.device, observed, **names)


def _disk_zero(layer: Layer, observed: str) -> Reason:
    at, disk = layer.device, layer.facts_as(DiskFacts)
    mode = disk.provisioning_mode
    driver = next((name for name in disk.drivers or () if name in _RAID_DRIVERS), None)
    if mode:
        observed += f", provisioning_mode is {mode}"
    if disk.ata_trim in ("unsupported", "forced_unsupported"):
        return reason("ata-no-trim", at, f"{observed}, libata says {disk.ata_trim}", device=at)
    if mode == "disabled":
        return reason("scsi-disabled", at, observed, device=at)
    if disk.virtual:
        if disk.virtio_discard is False:
            observed += ", virtio-blk has no feature discard"
        return reason("virtual-no-discards", at, observed, device=at)
    if mode == "full" and driver:
        return reason("raid-controller", at, f"{observed}, driver {driver}", device=at)
    if mode == "full":
        return reason("scsi-full", at, observed, device=at)
    if at.startswith("nvme") and disk.dataset_management is not True:
        return reason("nvme-no-dsm", at, observed, device=at)
    return reason("device-no-discards", at, observed, device=at)


def _limits(stack: Stack, layer: Layer) -> Iterator[Reason]:
    """Yield the causes of zero or lowered discard limits."""
    without = without_discards(stack, layer)
    if layer.kind is Kind.PARTITION or layer.limits.offered is None:
        return  # a partition has the limits of its disk
    if layer.limits.offered is False:
        if not without:
            yield own_zero(stack, layer)
        return
    for lower in without:
        if layer.is_array:
            observed = f"discard_max_bytes is 0 on {lower.device} and not on {layer.device}"
            yield reason("member-no-discards", layer.device, observed, disk=lower.device)
    most, hardware = layer.limits.max_bytes or 0, layer.limits.max_hw_bytes or 0
    # A difference below the granularity is the kernel's own rounding.
    if 0 < most < hardware - (layer.limits.granularity or 0) and not layer.below:
        observed = f"discard_max_bytes is {most}, discard_max_hw_bytes {hardware}"
        yield reason("limit-lowered", layer.device, observed, device=layer.device)


def _thin(stack: Stack, layer: Layer) -> Iterator[Reason]:
    mapped = layer.facts_as(ThinFacts).mapped_bytes
    if mapped is not None and mapped < layer.size_bytes:
        observed = f"{size(mapped)} of {size(layer.size_bytes)} are mapped"
        yield reason("thin-not-mapped", layer.device, observed)


def _md(stack: Stack, layer: Layer) -> Iterator[Reason]:
    if layer.level in RAID456 and layer.limits.offered:
        stripe = stripe_bytes(layer.facts_as(MdFacts))
        observed = f"stripes of {size(stripe)}" if stripe else "its stripes are not known"
        reshape = layer.facts_as(MdFacts).reshape_position
        if reshape not in (None, "none"):
            observed += f", a reshape is at {reshape}"
        yield reason("raid456-partial-stripe", layer.device, observed)


def _loop(stack: Stack, layer: Layer) -> Iterator[Reason]:
    if not layer.limits.offered:
        return
    loop = layer.facts_as(LoopFacts)
    if loop.simulated_drive:
        yield reason("advisory", layer.device, "it is a simulated drive", **_mounted(stack))
        return
    file, where = loop.backing_file or "", loop.backing_mount
    if is_zeroing(layer):
        return
    if loop.backing_filesystem in ("tmpfs", "ramfs"):
        return  # in memory, with no drive below
    observed = f"its file is {file}" + (f" on {loop.backing_filesystem}" if where else "")
    yield reason("loop-frees-file", layer.device, observed, file=file, **({"mount": where} if where else {}))


def _disk(stack: Stack, layer: Layer) -> Iterator[Reason]:
    at, disk = layer.device, layer.facts_as(DiskFacts)
    mode, trim = disk.provisioning_mode, disk.ata_trim
    if mode in _SENDING_MODES and disk.thin_provisioning is False and trim is None:
        yield reason("scsi-forced", at, f"provisioning_mode is {mode}, thin_provisioning 0", device=at)
    if trim == "forced_unqueued":
        yield reason("ata-unqueued-trim", at, "libata says forced_unqueued", device=at)
    unit, granularity = disk.deallocate_bytes, layer.limits.granularity
    if unit and granularity and unit > granularity:
        observed = f"NPDG is {size(unit)}, discard_granularity {size(granularity)}"
        yield reason("nvme-granularity-hidden", at, observed, device=at)
    if layer.limits.offered and not layer.device.startswith(MEMORY):
        if disk.virtual:
            yield reason("host-may-drop", at, f"it is a {named(layer)}", device=at)
        else:
            yield reason("advisory", at, f"it is a {named(layer)}", **_mounted(stack))


def _mounted(stack: Stack) -> dict[str, str]:
    """Return the mount point for use in remedies; empty for a bare device."""
    return {"mount": stack.filesystem.point} if stack.filesystem else {}


def named(layer: Layer) -> str:
    """Return a disk's model or, if unknown, its transport as text."""
    disk = layer.facts_as(DiskFacts)
    return disk.model or f"{disk.transport or 'block'} disk"


_RULES: dict[Kind, Callable[[Stack, Layer], Iterator[Reason]]] = {
    Kind.THIN: _thin,
    Kind.DM: _md,
    Kind.MD: _md,
    Kind.LOOP: _loop,
    Kind.DISK: _disk,
    Kind.MULTIPATH: _disk,
}


def reasons_of(stack: Stack, layer: Layer) -> list[Reason]:
    """Return a layer's own causes, without the causes in layers below it."""
    if layer.read_only and layer.device.startswith("nvme"):
        return [reason("nvme-locked", layer.device, f"{layer.device} is read-only", device=layer.device)]
    reasons = list(_limits(stack, layer))
    if layer.facts.bcache_discard is False:
        observed = f"bcache/discard of {layer.device} is 0"
        reasons.append(reason("bcache-discard-off", layer.device, observed, disk=layer.device))
    if layer.limits.offered is not False and layer.kind is not Kind.THIN:
        reasons += [kept.foretold() for kept in keeps(stack, layer)]
    rule = _RULES.get(layer.kind)
    hidden_path = any(up.kind is Kind.MULTIPATH and layer.device in up.below for up in stack.layers)
    if rule and not hidden_path:
        known = {why.code for why in reasons}
        reasons += [why for why in rule(stack, layer) if why.code not in known]
    return reasons


def doubts_of(layer: Layer) -> list[str]:
    """Return the open questions about a layer, as text."""
    doubts = []
    if layer.kind is Kind.LOOP and layer.limits.offered:
        loop = layer.facts_as(LoopFacts)
        kind = loop.backing_filesystem or ""
        if kind.startswith(_DOUBTFUL_FILES) and not loop.simulated_drive:
            doubts.append(f"whether {kind} can free parts of the file of {layer.device}: only a try shows it")
    if layer.kind is Kind.THIN_POOL and layer.facts_as(ThinPoolFacts).mode is None:
        why = layer.unknown.get(Unread.STATUS, "its status could not be read")
        doubts.append(f"whether the pool {layer.label or layer.device} passes discards on: {why}")
    if layer.kind is Kind.DM and layer.target is None and layer.limits.offered:
        why = layer.unknown.get(Unread.TABLE, "its table could not be read")
        doubts.append(f"what {layer.label or layer.device} does with discards: {why}")
    if layer.facts_as(DiskFacts).vendor == "LIO-ORG" and layer.limits.offered:
        doubts.append(
            f"whether the target of {layer.device} (Linux LIO) passes discards on: its backing device may "
            "refuse them, and after the first refusal Linux sends none until the disk is added again"
        )
    if layer.kind is Kind.THIN:
        doubts.append(f"how much of {layer.label or layer.device} is shared with snapshots (thin-shared)")
    if Unread.DEALLOCATE_BYTES in layer.unknown and layer.limits.offered:
        why = layer.unknown[Unread.DEALLOCATE_BYTES]
        doubts.append(f"the unit in which {layer.device} deallocates: {why}")
    return doubts
