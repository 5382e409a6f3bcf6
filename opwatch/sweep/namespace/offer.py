"""Decide whether a drive's NVMe namespace can be replaced by a smaller one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.sweep.levels import OpLevel

# NVMe status codes, with the status code type above the low byte.
INVALID_OPCODE, INVALID_FIELD, NO_CAPACITY, NO_IDENTIFIER = 0x001, 0x002, 0x115, 0x116
_MANAGEMENT, _ATTACHMENT = 0x0D, 0x15


@dataclass(frozen=True, slots=True)
class NamespaceOffer:
    """A drive's report of its namespaces.

    `controllers` and `allocated` cover the whole subsystem, attached or not. `granularity` is the step size
    in bytes of namespace sizes and capacities. `effects` is the Commands Supported and Effects log page, or
    None if the drive has none.
    """

    controller: Controller
    namespace: Namespace
    nsid: int
    controllers: tuple[int, ...]
    allocated: tuple[int, ...]
    granularity: tuple[int, int] = (1, 1)
    effects: bytes | None = None
    is_zoned: bool = False


def is_supported(effects: bytes, opcode: int) -> bool:
    """Return whether the command effects log page marks an admin command as supported (CSUPP)."""
    return bool(effects[4 * opcode] & 1)


def list_objections(offer: NamespaceOffer) -> list[str]:
    """Return the reasons not to replace this namespace, phrased to follow the disk's name."""
    controller, namespace = offer.controller, offer.namespace
    reasons = []
    if offer.effects is not None:
        commands = {"Namespace Management": _MANAGEMENT, "Namespace Attachment": _ATTACHMENT}
        lacks = [name for name, opcode in commands.items() if not is_supported(offer.effects, opcode)]
        if lacks:
            reasons.append(f"announces but does not support {' and '.join(lacks)} (log page 05h)")
    if len(offer.controllers) != 1:
        reasons.append(
            f"has {len(offer.controllers)} controllers in its subsystem: another one may use its namespaces"
        )
    if offer.allocated != (offer.nsid,):
        numbers = ", ".join(str(number) for number in offer.allocated)
        reasons.append(f"has other namespaces than this one ({offer.nsid}): {numbers or 'none'}")
    if namespace.metadata_bytes or namespace.protection:
        reasons.append("has blocks with metadata or protection information")
    if offer.is_zoned:
        reasons.append("has zones: a namespace of another command set cannot be recreated as it was")
    if not controller.capacity_bytes:
        reasons.append("does not report its capacity (TNVMCAP is 0), so the original size cannot be restored")
    if not (namespace.size_lbas and namespace.capacity_lbas and namespace.lba_bytes):
        reasons.append("does not report its size")
    return reasons


def find_level_refusal(levels: Iterable[OpLevel], offer: NamespaceOffer) -> str | None:
    """Return the reason why a level cannot be a namespace size, or None if all levels can."""
    size, capacity = offer.granularity
    step = max(size, capacity, offer.namespace.lba_bytes or 1)
    for level in levels:
        if level.usable_bytes % size or level.usable_bytes % capacity or level.usable_bytes % step:
            nearest = max(level.usable_bytes // step, 1) * step
            return (
                f"level {level.label} is {level.usable_bytes} bytes, but namespace sizes are multiples "
                f"of {step} bytes: use --op {nearest}"
            )
    return None


def compute_impossible_lbas(offer: NamespaceOffer) -> int:
    """Return a size in blocks that exceeds any namespace this drive could have."""
    lba_bytes = offer.namespace.lba_bytes or 512
    return 2 * ((offer.controller.capacity_bytes or 0) // lba_bytes + (offer.namespace.size_lbas or 1))


def find_probe_refusal(status: int, name: str) -> str | None:
    """Evaluate the status of a Create with an impossible size.

    Returns None if the status shows working namespace management, or else the reason for refusal.
    """
    if status in (NO_CAPACITY, NO_IDENTIFIER):
        return None
    said = {INVALID_OPCODE: "invalid opcode", INVALID_FIELD: "invalid field", 0: "success"}
    word = f" ({said[status]})" if status in said else ""
    return (
        f"{name} announces namespace management but does not implement it: it answers a Create larger "
        f"than the drive with {status:03X}h{word}, not 115h (insufficient capacity)"
    )
