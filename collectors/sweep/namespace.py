"""Replace the drive's only namespace by one of the level's size, and restore it afterwards.

The disk disappears with each namespace and may return under another name, so the controller is held instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from opwatch.collectors.guard.looking import identity_of_disk, look_at
from opwatch.collectors.namespaces.commands import (
    CommandFailed,
    attach_namespace,
    create_namespace,
    delete_namespace,
    detach_namespace,
)
from opwatch.collectors.namespaces.controller import HeldController, controller_like, controller_of
from opwatch.collectors.sweep.bench import SweepBench
from opwatch.collectors.sweep.purging import empty
from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.guard.facts import GuardFacts, PartFacts
from opwatch.guard.identity import DiskIdentity
from opwatch.guard.obstacles import Consent, obstacles, require_none
from opwatch.host.device import BlockDevice, Devices
from opwatch.sweep.journal.changes import note_changed, note_restored
from opwatch.sweep.journal.file import JournalFile
from opwatch.sweep.journal.state import SweepState
from opwatch.sweep.journal.undo import parse_undo
from opwatch.sweep.namespace.back import NamespaceUndo, WayBack, by_hand, create_page, way_back
from opwatch.sweep.namespace.offer import NamespaceOffer, impossible_lbas, probe_refusal, reasons_against


@contextlib.contextmanager
def namespaced(bench: SweepBench, size_bytes: int) -> Iterator[str]:
    """Create a discarded namespace of this size and yield its path.

    The journal records the change before anything is deleted and until the original namespace is back.
    """
    claim = bench.whole_disk
    if size_bytes == claim.disk.size_bytes:
        yield claim.path
        return
    with HeldController(controller_of(claim.devices, claim.disk)) as controller:
        controller.require(claim.identity)
        offer = controller.offer(claim.devices, claim.disk)
        if reasons := reasons_against(offer):
            raise RefusedError(f"{claim.disk.name} {reasons[0]}")
        undo = _undo_of(offer, size_bytes)
        claim.require_ours()
        note_changed(bench.journal, bench.state, undo)
        try:
            _replace(bench, controller, undo)
            empty(bench)
            yield claim.path
        finally:
            _restore(bench, controller, undo)


def _undo_of(offer: NamespaceOffer, level_bytes: int) -> NamespaceUndo:
    namespace = offer.namespace
    if not (namespace.size_lbas and namespace.capacity_lbas and namespace.lba_bytes):
        raise OpwatchError("the namespace does not tell its size")
    return NamespaceUndo(
        nsid=offer.nsid,
        size_lbas=namespace.size_lbas,
        lba_bytes=namespace.lba_bytes,
        capacity_lbas=namespace.capacity_lbas,
        lba_format=namespace.lba_format,
        nvm_set=namespace.nvm_set,
        endurance_group=namespace.endurance_group or 0,
        level_lbas=level_bytes // namespace.lba_bytes,
    )


def _replace(bench: SweepBench, controller: HeldController, undo: NamespaceUndo) -> None:
    """Replace the drive's namespace by the level's.

    Detaches first, so that a drive without support for detach has lost nothing.
    """
    claim, number = bench.whole_disk, controller.identified.number
    detach_namespace(controller.fileno(), undo.nsid, number)
    delete_namespace(controller.fileno(), undo.nsid)
    # The namespace id stays in use while the disk is open.
    bench.let_go()
    controller.wait_until_gone(claim.devices)
    nsid = create_namespace(controller.fileno(), create_page(undo.level_lbas, undo.level_lbas, undo))
    attach_namespace(controller.fileno(), nsid, number)
    bench.take(controller.disk_of(claim.devices, nsid, undo.level_lbas * undo.lba_bytes))


def _restore(bench: SweepBench, controller: HeldController, undo: NamespaceUndo) -> None:
    """Restore the drive's namespace and hold it."""
    claim = bench.whole_disk
    try:
        if bench.holds():
            claim.require_ours()
        disk = bring_back(claim.devices, controller, undo, bench.let_go)
    except OpwatchError as error:
        raise _not_restored(controller, undo, error, bench.journal) from error
    note_restored(bench.journal, bench.state, undo, identity_of_disk(claim.devices, disk))
    bench.take(disk)


def bring_back(
    devices: Devices,
    controller: HeldController,
    undo: NamespaceUndo,
    let_go: Callable[[], None] = lambda: None,
) -> BlockDevice:
    """Return the disk of the drive's original namespace, recreated if necessary.

    `let_go` closes the descriptors of another namespace before that is deleted.
    """
    there, number = controller.namespaces(), controller.identified.number
    way = way_back(undo, there, controller.name)
    if way is WayBack.REPLACE:
        delete_namespace(controller.fileno(), there[0].nsid)
        let_go()
        controller.wait_until_gone(devices)
    if way in (WayBack.REPLACE, WayBack.CREATE):
        nsid = create_namespace(controller.fileno(), create_page(undo.size_lbas, undo.capacity_lbas, undo))
    else:
        nsid = there[0].nsid
    if way is not WayBack.NOTHING:
        attach_namespace(controller.fileno(), nsid, number)
    return controller.disk_of(devices, nsid, undo.size_bytes)


def _not_restored(
    controller: HeldController, undo: NamespaceUndo, error: OpwatchError, journal: JournalFile
) -> OpwatchError:
    words = by_hand(undo, controller.name, controller.identified.number)
    return OpwatchError(
        f"{controller.name}: its namespace of {undo.size_bytes} bytes is not restored: {error}; once that is "
        f"mended, {journal.resume_words} restores it; or by hand: {words}"
    )


def undo_namespaces(devices: Devices, consent: Consent, journal: JournalFile, state: SweepState) -> None:
    """Restore the namespace that a killed sweep removed.

    Raises RefusedError if another process uses what the sweep left, or if the drive was not confirmed.
    """
    for undo in [parse_undo(text) for text in state.undo]:
        if not isinstance(undo, NamespaceUndo):
            continue
        with HeldController(controller_like(state.identity)) as controller:
            controller.require(state.identity)
            require_none(obstacles(_left(devices, controller, state.identity), consent))
            try:
                disk = bring_back(devices, controller, undo)
            except CommandFailed as error:
                raise _not_restored(controller, undo, error, journal) from error
        note_restored(journal, state, undo, identity_of_disk(devices, disk))


def _left(devices: Devices, controller: HeldController, identity: DiskIdentity) -> GuardFacts:
    """Return the guard facts of the disk left by a killed sweep, or of the drive if there is no disk."""
    disks = controller.disks(devices)
    if disks:
        return look_at(devices, disks[0].name)
    return GuardFacts(
        identity, controller.name, "disk", is_virtual=False, parts=(PartFacts(controller.name),)
    )


def require_namespaces(devices: Devices, disk: BlockDevice) -> None:
    """Raise Unsupported unless the drive rejects a Create of impossible size as specified.

    Otherwise a namespace would be deleted before a failing Create is noticed.
    """
    with HeldController(controller_of(devices, disk)) as controller:
        offer = controller.offer(devices, disk)
        lbas, status = impossible_lbas(offer), 0
        page = create_page(lbas, lbas, _undo_of(offer, 0))
        try:
            # An unexpectedly created namespace is ours and is deleted immediately.
            delete_namespace(controller.fileno(), create_namespace(controller.fileno(), page))
        except CommandFailed as error:
            status = error.status
        if refused := probe_refusal(status, disk.name):
            raise Unsupported(f"--method namespace: {refused}; nothing was deleted")
