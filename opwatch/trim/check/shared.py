"""Find blocks shared between loop devices' files and other files. A trim unmaps such blocks from the loop
device's file, but frees no space. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opwatch.trim.check.dry_run import DevicePrediction
from opwatch.trim.check.freed_bytes import simplify_stack
from opwatch.trim.layers.kinds import find_granule
from opwatch.trim.layers.loop import LoopFacts
from opwatch.trim.layers.remap import Landing, map_down
from opwatch.trim.space.extents import Extents
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Stack
from opwatch.units import format_size


@dataclass(frozen=True, slots=True)
class SharedBlocks:
    """Loss to shared blocks. `runs` is the dry run without this loss. `lost_bytes` are the shared bytes out
    of `arriving_bytes`, both counting every copy; None if unknown."""

    reasons: tuple[Reason, ...]
    runs: tuple[DevicePrediction, ...]
    lost_bytes: int | None = 0
    arriving_bytes: int = 0


def _explain_sharing(stack: Stack, device: str, shared: Extents, lost: int | None) -> Reason:
    layer = stack.find_layer(device)
    file = (layer.facts_as(LoopFacts).backing_file if layer else None) or device
    observed = f"{format_size(shared.total_bytes)} of {file} is shared with other files"
    if lost is not None:
        observed += f", {format_size(lost)} of it in the trimmed range"
    return make_reason("loop-file-shared", device, observed, lost, file=file)


def _keep_whole_granules(stack: Stack, landing: Landing) -> Extents:
    """Return the freeable part of a landing: the device's whole granules."""
    layer = stack.find_layer(landing.device)
    granule = find_granule(layer) if layer else None
    return landing.extents.round_to_granules(*granule) if granule else landing.extents


def find_shared_blocks(
    stack: Stack, runs: Sequence[DevicePrediction], free: Mapping[str, Extents], shared: Mapping[str, Extents]
) -> SharedBlocks:
    """Compute the loss to shared blocks for these runs. `free` has the free extents by major:minor, `shared`
    the shared extents by loop device."""
    shared = {device: extents for device, extents in shared.items() if extents}
    if not shared:
        return SharedBlocks((), tuple(runs))
    stack = simplify_stack(stack)
    lost, mended, arriving, is_known = Counter[str](), [], 0, bool(runs)
    for run in runs:
        top = stack.find_layer(run.device)
        sent = free[top.dev].filter_by_length(run.minimum_bytes) if top else Extents()
        landings = list(map_down(stack, run.device, sent, copies=True))
        is_known = is_known and not any(landing.stopped for landing in landings)
        gone = 0
        for landing in landings:
            whole = _keep_whole_granules(stack, landing)
            arriving += whole.total_bytes
            taken = (whole & shared.get(landing.device, Extents())).total_bytes
            lost[landing.device] += taken
            gone += taken
        # With several copies, a byte may be freed on only some of the disks, so subtract nothing from the
        # run.
        is_once = sum(landing.extents.total_bytes for landing in landings) == sent.total_bytes
        gone = min(gone, run.expected_bytes) if is_once else 0
        mended.append(replace(run, shared_bytes=gone, expected_bytes=run.expected_bytes - gone))
    if not is_known:
        reasons = [_explain_sharing(stack, device, extents, None) for device, extents in shared.items()]
        return SharedBlocks(tuple(reasons), tuple(runs), None)
    reasons = [
        _explain_sharing(stack, device, shared[device], taken) for device, taken in lost.items() if taken
    ]
    return SharedBlocks(tuple(reasons), tuple(mended), lost.total(), arriving)
