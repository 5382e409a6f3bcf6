"""Sweep level by lowering an ATA drive's highest address: the drive itself rejects access to the rest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.guard.obstacles import Consent
from opwatch.host.device import Devices
from opwatch.journal.changes import append_change, append_restoration
from opwatch.journal.file import JournalFile
from opwatch.journal.state import SweepState
from opwatch.journal.undo import HighestUndo, parse_undo
from opwatch.tools.acting.addresses.highest import HighestAddress, require_full_size
from opwatch.tools.acting.guard.held_disk import HeldDisk


def require_changeable(claim: HeldDisk) -> None:
    """Raise Unsupported if the drive refuses changes, before any data are lost.

    Sets the current size twice, because some drives accept one change per power cycle and could not be
    restored.
    """
    disk = claim.disk
    address = HighestAddress(claim.fileno(), disk)
    require_full_size(address)
    _require_same(claim, address)
    address.set_visible_bytes(disk.size_bytes)
    try:
        address.set_visible_bytes(disk.size_bytes)
    except Unsupported as error:
        raise Unsupported(
            f"{disk.name} accepts one change of its maximum address per power cycle, and a level needs "
            f"two: nothing was changed ({error})"
        ) from error


@contextlib.contextmanager
def lower_address(claim: HeldDisk, journal: JournalFile, state: SweepState, n_bytes: int) -> Iterator[str]:
    """Lower the drive's visible size and yield the drive's path.

    The journal records the change beforehand and until the size is restored.
    """
    disk = claim.disk
    address = HighestAddress(claim.fileno(), disk)
    undo = HighestUndo(n_bytes, disk.size_bytes)
    append_change(journal, state, undo)
    try:
        address.set_visible_bytes(undo.shown_bytes)
        size = address.rescan()
        if size not in (undo.shown_bytes, undo.original_bytes):
            raise OpwatchError(f"{disk.name} shows {n_bytes} bytes, but the kernel uses {size}")
        claim.own_size = size
        yield claim.path
        if (shown := address.read_visible_bytes()) != n_bytes:
            raise OpwatchError(
                f"{disk.name} shows {shown} bytes at the end of a level of {n_bytes} bytes: it was "
                "reset during the level (see dmesg), so the level does not count; resume the sweep"
            )
    finally:
        _restore_address(address, undo, journal)
        claim.own_size = None
        append_restoration(journal, state, undo)


def _require_same(claim: HeldDisk, address: HighestAddress) -> None:
    """Raise RefusedError if the drive reports another serial number than the kernel."""
    if address.offers.serial != claim.identity.serial:
        raise RefusedError(
            f"{claim.identity.name} reports serial number {address.offers.serial!r}, not "
            f"{claim.identity.serial!r}: no ATA command was sent to change it"
        )


def _restore_address(address: HighestAddress, undo: HighestUndo, journal: JournalFile) -> None:
    """Restore the visible size."""
    name = address.disk.name
    try:
        shown = address.read_visible_bytes()
        if shown not in (undo.shown_bytes, undo.original_bytes):
            raise RefusedError(f"another program has set it to {shown} bytes")
        if shown != undo.original_bytes:
            address.set_visible_bytes(undo.original_bytes)
        if (size := address.rescan()) != undo.original_bytes:
            raise OpwatchError(f"the kernel uses a size of {size} bytes")
    except OpwatchError as error:
        raise OpwatchError(
            f"{name}: its size of {undo.original_bytes} bytes was not restored: {error}; power-cycle "
            f"it, then: {journal.resume_command}"
        ) from error


def undo_highest(
    devices: Devices, named: str, consent: Consent, journal: JournalFile, state: SweepState
) -> None:
    """Undo the changes of a killed sweep, unless the guard objects to anything but the changed size."""
    for undo in [parse_undo(text) for text in state.undo]:
        if not isinstance(undo, HighestUndo):
            continue
        size = devices.resolve(named).disk.size_bytes
        planned = replace(state.disk_identity, size_bytes=size)
        with HeldDisk(devices, named, replace(consent, planned=planned)) as claim:
            address = HighestAddress(claim.fileno(), claim.disk)
            _require_same(claim, address)
            _restore_address(address, undo, journal)
        append_restoration(journal, state, undo)
