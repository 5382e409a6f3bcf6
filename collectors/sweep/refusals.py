"""Why a sweep would not run on a drive, as a plan prints it."""

from __future__ import annotations

from opwatch.collectors.guard.looking import look_at
from opwatch.collectors.sweep.purging import require_discards
from opwatch.errors import Unsupported
from opwatch.guard.obstacles import Consent, obstacles, without_consent
from opwatch.host.device import Devices
from opwatch.sweep.plan import SweepRefusal


def refusals(devices: Devices, named: str, *, allow_virtual: bool) -> list[SweepRefusal]:
    """Everything that is in the way but the words that a plan does not need. It reads, and writes nothing;
    what may not be read without root is one of the reasons."""
    facts = look_at(devices, named)
    reasons = without_consent(obstacles(facts, Consent(destroy=True, allow_virtual=allow_virtual)))
    listed = [SweepRefusal("guard", f"{reason.where}: {reason.what}", reason.remedy) for reason in reasons]
    try:
        require_discards(devices.resolve(named).disk)
    except Unsupported as error:
        listed.append(SweepRefusal("purge", str(error), "take a drive that obeys discards"))
    return listed
