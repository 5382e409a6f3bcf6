"""List the reasons why a sweep would not run on a drive, for a plan."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.collectors.guard.disk_facts import collect_facts
from opwatch.errors import Unsupported
from opwatch.guard.obstacles import Consent, drop_consent_obstacles, find_obstacles
from opwatch.host.device import Devices
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.namespace.offer import find_level_refusal
from opwatch.sweep.plan import SweepRefusal
from opwatch.tools.acting.namespaces.controller import find_namespace_offer
from opwatch.tools.acting.sweep.offers import find_method_refusal, find_purge_refusal
from opwatch.tools.acting.sweep.purging import require_discards

_SAME_TO_THE_DRIVE = (
    "use --method window: to the drive, space that is discarded and never written is the same"
)


def find_refusals(
    devices: Devices,
    named: str,
    *,
    allow_virtual: bool,
    method: str = "window",
    purge: str = "discard",
    levels: Sequence[OpLevel] = (),
) -> list[SweepRefusal]:
    """Return all obstacles except the missing consent. Writes nothing.

    Facts that only root can read are listed as a reason too.
    """
    facts = collect_facts(devices, named)
    reasons = drop_consent_obstacles(
        find_obstacles(facts, Consent(destroy=True, allow_virtual=allow_virtual))
    )
    listed = [SweepRefusal("guard", f"{reason.where}: {reason.what}", reason.remedy) for reason in reasons]
    disk = devices.resolve(named).disk
    if refused := find_method_refusal(disk, method):
        listed.append(SweepRefusal("method", refused, _SAME_TO_THE_DRIVE))
    elif method == "namespace" and (refused := find_level_refusal(levels, find_namespace_offer(disk))):
        listed.append(SweepRefusal("method", f"{disk.name}: {refused}", _SAME_TO_THE_DRIVE))
    if refused := find_purge_refusal(disk, purge):
        listed.append(SweepRefusal("purge", refused, "take --purge discard"))
    try:
        require_discards(disk)
    except Unsupported as error:
        listed.append(SweepRefusal("purge", str(error), "use a drive that accepts discards"))
    return listed
