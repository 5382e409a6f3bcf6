"""Whose requests waited in a layer before the device, if waits were counted by owner. Pure."""

from __future__ import annotations

import math
from dataclasses import replace

from opwatch.why.candidate import Candidate
from opwatch.why.layers import StackLayer
from opwatch.why.slowness import Slowness

# An owner with a smaller share of the wait is not named, and neither are more owners than these.
_MIN_SHARE, _MAX_NAMED = 0.1, 3


def list_waiting_owners(slowness: Slowness, layer: StackLayer) -> tuple[tuple[str, float], ...]:
    """Return the owners whose requests waited in a layer in the slow intervals, with their shares of the
    wait, largest first; empty if waits were not counted by owner."""
    places = [at for at, slow in enumerate(slowness.slow) if slow]
    waits = [
        (owner.name, math.fsum(series[at] for at in places))
        for owner in (slowness.disk.owners or {}).values()
        if (series := owner.waits.get((slowness.op, layer.value)))
    ]
    # Requests of owners without a name in the table waited too.
    whole = max(
        math.fsum(slowness.times.sums[layer][at] for at in places) if layer in slowness.times.sums else 0.0,
        math.fsum(wait for _, wait in waits),
    )
    shares = [(name, wait / whole) for name, wait in waits if wait > 0]
    return tuple(sorted(shares, key=lambda one: -one[1]))


def name_waiting_owners(candidate: Candidate, slowness: Slowness, layer: StackLayer) -> Candidate:
    """Return a cause of a layer with the owners whose requests waited there."""
    if layer not in (StackLayer.THROTTLE, StackLayer.ADMISSION):
        return candidate
    found = [one for one in list_waiting_owners(slowness, layer) if one[1] >= _MIN_SHARE][:_MAX_NAMED]
    if not found:
        return candidate
    shown = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found)
    return replace(
        candidate, waited=tuple(found), evidence=f"{candidate.evidence}; share of the wait: {shown}"
    )
