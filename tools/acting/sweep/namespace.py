"""Replace the drive's only namespace by one of the level's size, and restore it afterwards.

The disk disappears with each namespace and may return under another name, so the controller is held instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from opwatch.collectors.guard.disk_facts import collect_facts, read_disk_identity
from opwatch.errors import OpwatchError, RefusedError, Unsupported
from opwatch.guard.facts import GuardFacts, PartFacts
from opwatch.guard.identity import DiskIdentity
from opwatch.guard.obstacles import Consent, find_obstacles, require_no_obstacles
from opwatch.host.device import BlockDevice, Devices
from opwatch.journal.changes import append_change, append_restoration
from opwatch.journal.file import JournalFile
from opwatch.journal.state import SweepState
from opwatch.journal.undo import parse_undo
from opwatch.sweep.namespace.offer import (
    NamespaceOffer,
    compute_impossible_lbas,
    find_probe_refusal,
    list_objections,
)
from opwatch.sweep.namespace.restore import (
    NamespaceUndo,
    RestoreAction,
    choose_restore_action,
    format_restore_commands,
    make_create_page,
)
from opwatch.tools.acting.namespaces.commands import (
    CommandFailed,
    attach_namespace,
    create_namespace,
    delete_namespace,
    detach_namespace,
)
from opwatch.tools.acting.namespaces.controller import HeldController, find_controller, find_drive_controller
from opwatch.tools.acting.sweep.bench import SweepBench
from opwatch.tools.acting.sweep.purging import discard_space


@contextlib.contextmanager
def create_level_namespace(bench: SweepBench, size_bytes: int) -> Iterator[str]:
    """Create a discarded namespace of this size and yield its path.

    The journal records the change before anything is deleted and until the original namespace is back.
    """
    claim = bench.disk_claim
    if size_bytes == claim.disk.size_bytes:
        yield claim.path
        return
    with HeldController(find_controller(claim.devices, claim.disk)) as controller:
        controller.require_drive(claim.identity)
        offer = controller.read_namespace_offer(claim.devices, claim.disk)
        if reasons := list_objections(offer):
            raise RefusedError(f"{claim.disk.name} {reasons[0]}")
        undo = _make_undo(offer, size_bytes)
        claim.require_ours()
        append_change(bench.journal, bench.state, undo)
        try:
            _replace_namespace(bench, controller, undo)
            discard_space(bench)
            yield claim.path
        finally:
            _restore_and_hold(bench, controller, undo)


def _make_undo(offer: NamespaceOffer, level_bytes: int) -> NamespaceUndo:
    namespace = offer.namespace
    if not (namespace.size_lbas and namespace.capacity_lbas and namespace.lba_bytes):
        raise OpwatchError("the namespace does not report its size")
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


def _replace_namespace(bench: SweepBench, controller: HeldController, undo: NamespaceUndo) -> None:
    """Replace the drive's namespace by the level's.

    Detaches first, so that a drive without support for detach has lost nothing.
    """
    claim, number = bench.disk_claim, controller.identified.number
    detach_namespace(controller.fileno(), undo.nsid, number)
    delete_namespace(controller.fileno(), undo.nsid)
    # The namespace id stays in use while the disk is open.
    bench.close_disk()
    controller.wait_until_gone(claim.devices)
    nsid = create_namespace(controller.fileno(), make_create_page(undo.level_lbas, undo.level_lbas, undo))
    attach_namespace(controller.fileno(), nsid, number)
    bench.switch_disk(controller.wait_for_disk(claim.devices, nsid, undo.level_lbas * undo.lba_bytes))


def _restore_and_hold(bench: SweepBench, controller: HeldController, undo: NamespaceUndo) -> None:
    """Restore the drive's namespace and hold it."""
    claim = bench.disk_claim
    try:
        if bench.is_same_device():
            claim.require_ours()
        disk = restore_namespace(claim.devices, controller, undo, bench.close_disk)
    except OpwatchError as error:
        raise _make_restore_error(controller, undo, error, bench.journal) from error
    append_restoration(bench.journal, bench.state, undo, read_disk_identity(claim.devices, disk))
    bench.switch_disk(disk)


def restore_namespace(
    devices: Devices,
    controller: HeldController,
    undo: NamespaceUndo,
    let_go: Callable[[], None] = lambda: None,
) -> BlockDevice:
    """Return the disk of the drive's original namespace, recreated if necessary.

    `let_go` closes the descriptors of another namespace before that is deleted.
    """
    there, number = controller.list_namespaces(), controller.identified.number
    way = choose_restore_action(undo, there, controller.name)
    if way is RestoreAction.REPLACE:
        delete_namespace(controller.fileno(), there[0].nsid)
        let_go()
        controller.wait_until_gone(devices)
    if way in (RestoreAction.REPLACE, RestoreAction.CREATE):
        nsid = create_namespace(
            controller.fileno(), make_create_page(undo.size_lbas, undo.capacity_lbas, undo)
        )
    else:
        nsid = there[0].nsid
    if way is not RestoreAction.NOTHING:
        attach_namespace(controller.fileno(), nsid, number)
    return controller.wait_for_disk(devices, nsid, undo.size_bytes)


def _make_restore_error(
    controller: HeldController, undo: NamespaceUndo, error: OpwatchError, journal: JournalFile
) -> OpwatchError:
    words = format_restore_commands(undo, controller.name, controller.identified.number)
    return OpwatchError(
        f"{controller.name}: its namespace of {undo.size_bytes} bytes is not restored: {error}; once "
        f"that is fixed, {journal.resume_command} restores it; or manually: {words}"
    )


def undo_namespaces(devices: Devices, consent: Consent, journal: JournalFile, state: SweepState) -> None:
    """Restore the namespace that a killed sweep removed.

    Raises RefusedError if another process uses what the sweep left, or if the drive was not confirmed.
    """
    for undo in [parse_undo(text) for text in state.undo]:
        if not isinstance(undo, NamespaceUndo):
            continue
        with HeldController(find_drive_controller(state.disk_identity)) as controller:
            controller.require_drive(state.disk_identity)
            require_no_obstacles(
                find_obstacles(_collect_leftover_facts(devices, controller, state.disk_identity), consent),
                is_begun=True,
            )
            try:
                disk = restore_namespace(devices, controller, undo)
            except CommandFailed as error:
                raise _make_restore_error(controller, undo, error, journal) from error
        append_restoration(journal, state, undo, read_disk_identity(devices, disk))


def _collect_leftover_facts(
    devices: Devices, controller: HeldController, identity: DiskIdentity
) -> GuardFacts:
    """Return the guard facts of the disk left by a killed sweep, or of the drive if there is no disk."""
    disks = controller.find_disks(devices)
    if disks:
        return collect_facts(devices, disks[0].name)
    return GuardFacts(
        identity, controller.name, "disk", is_virtual=False, parts=(PartFacts(controller.name),)
    )


def require_namespaces(devices: Devices, disk: BlockDevice) -> None:
    """Raise Unsupported unless the drive rejects a Create of impossible size as specified.

    Otherwise a namespace would be deleted before a failing Create is noticed.
    """
    with HeldController(find_controller(devices, disk)) as controller:
        offer = controller.read_namespace_offer(devices, disk)
        lbas, status = compute_impossible_lbas(offer), 0
        page = make_create_page(lbas, lbas, _make_undo(offer, 0))
        try:
            # An unexpectedly created namespace is ours and is deleted immediately.
            delete_namespace(controller.fileno(), create_namespace(controller.fileno(), page))
        except CommandFailed as error:
            status = error.status
        if refused := find_probe_refusal(status, disk.name):
            raise Unsupported(f"--method namespace: {refused}; nothing was deleted")
