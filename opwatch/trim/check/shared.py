"""Find blocks shared between loop devices' files and other files. A trim unmaps such blocks from the loop
device's file, but frees no space. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opwatch.trim.check.dryrun import DeviceRun
from opwatch.trim.check.ends import straightened
from opwatch.trim.space.extents import Extents
from opwatch.trim.space.remap import Landing, descend
from opwatch.trim.stack.causes import Reason, reason
from opwatch.trim.stack.facts import LoopFacts
from opwatch.trim.stack.layers import Stack
from opwatch.units import size


@dataclass(frozen=True, slots=True)
class SharedBlocks:
    """Loss to shared blocks. `runs` is the dry run without this loss. `lost_bytes` are the shared bytes out
    of `arriving_bytes`, both counting every copy; None if unknown."""

    reasons: tuple[Reason, ...]
    runs: tuple[DeviceRun, ...]
    lost_bytes: int | None = 0
    arriving_bytes: int = 0


def _reason(stack: Stack, device: str, shared: Extents, lost: int | None) -> Reason:
    layer = stack.layer(device)
    file = (layer.facts_as(LoopFacts).backing_file if layer else None) or device
    observed = f"{size(shared.total)} of {file} are shared with others"
    if lost is not None:
        observed += f", {size(lost)} of that where a trim reaches"
    return reason("loop-file-shared", device, observed, lost, file=file)


def _whole(stack: Stack, landing: Landing) -> Extents:
    """Return the freeable part of a landing: the device's whole granules."""
    layer = stack.layer(landing.device)
    return landing.extents.granules(*layer.granule) if layer and layer.granule else landing.extents


def shared_blocks(
    stack: Stack, runs: Sequence[DeviceRun], free: Mapping[str, Extents], shared: Mapping[str, Extents]
) -> SharedBlocks:
    """Compute the loss to shared blocks for these runs. `free` has the free extents by major:minor, `shared`
    the shared extents by loop device."""
    shared = {device: extents for device, extents in shared.items() if extents}
    if not shared:
        return SharedBlocks((), tuple(runs))
    stack = straightened(stack)
    lost, mended, arriving, is_known = Counter[str](), [], 0, bool(runs)
    for run in runs:
        top = stack.layer(run.device)
        sent = free[top.dev].at_least(run.minimum_bytes) if top else Extents()
        landings = list(descend(stack, run.device, sent, copies=True))
        is_known = is_known and not any(landing.stopped for landing in landings)
        gone = 0
        for landing in landings:
            whole = _whole(stack, landing)
            arriving += whole.total
            taken = (whole & shared.get(landing.device, Extents())).total
            lost[landing.device] += taken
            gone += taken
        # With several copies, a byte may be freed on only some of the disks, so subtract nothing from the
        # run.
        is_once = sum(landing.extents.total for landing in landings) == sent.total
        gone = min(gone, run.expected_bytes) if is_once else 0
        mended.append(replace(run, shared_bytes=gone, expected_bytes=run.expected_bytes - gone))
    if not is_known:
        reasons = [_reason(stack, device, extents, None) for device, extents in shared.items()]
        return SharedBlocks(tuple(reasons), tuple(runs), None)
    reasons = [_reason(stack, device, shared[device], taken) for device, taken in lost.items() if taken]
    return SharedBlocks(tuple(reasons), tuple(mended), lost.total(), arriving)
