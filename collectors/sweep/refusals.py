"""List the reasons why a sweep would not run on a drive, for a plan."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.collectors.guard.looking import look_at
from opwatch.collectors.namespaces.controller import offer_of
from opwatch.collectors.sweep.offers import method_refusal, purge_refusal
from opwatch.collectors.sweep.purging import require_discards
from opwatch.errors import Unsupported
from opwatch.guard.obstacles import Consent, obstacles, without_consent
from opwatch.host.device import Devices
from opwatch.sweep.levels import OpLevel
from opwatch.sweep.namespace.offer import level_refusal
from opwatch.sweep.plan import SweepRefusal

_SAME_TO_THE_DRIVE = "take --method window: what is discarded and never written is the same to the drive"


def refusals(
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
    facts = look_at(devices, named)
    reasons = without_consent(obstacles(facts, Consent(destroy=True, allow_virtual=allow_virtual)))
    listed = [SweepRefusal("guard", f"{reason.where}: {reason.what}", reason.remedy) for reason in reasons]
    disk = devices.resolve(named).disk
    if refused := method_refusal(disk, method):
        listed.append(SweepRefusal("method", refused, _SAME_TO_THE_DRIVE))
    elif method == "namespace" and (refused := level_refusal(levels, offer_of(disk))):
        listed.append(SweepRefusal("method", f"{disk.name}: {refused}", _SAME_TO_THE_DRIVE))
    if refused := purge_refusal(disk, purge):
        listed.append(SweepRefusal("purge", refused, "take --purge discard"))
    try:
        require_discards(disk)
    except Unsupported as error:
        listed.append(SweepRefusal("purge", str(error), "take a drive that obeys discards"))
    return listed
