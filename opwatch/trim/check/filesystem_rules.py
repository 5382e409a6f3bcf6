"""Find the causes in a filesystem: type, mount options and state. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from opwatch.trim.filesystems.base import find_online_discard
from opwatch.trim.filesystems.kinds import find_filesystem
from opwatch.trim.stack.causes import Reason, make_reason
from opwatch.trim.stack.layers import Stack


def find_refusal(stack: Stack) -> Reason | None:
    """Return why the filesystem refuses FITRIM, or None."""
    filesystem = stack.filesystem
    assert filesystem
    if refusal := find_filesystem(filesystem.kind).find_refusal(filesystem):
        return refusal
    at, locked = filesystem.point, [top.device for top in stack.find_tops() if top.read_only]
    if locked:
        return make_reason("filesystem-refuses", at, f"{locked[0]} is read-only", mount=at, option="ro")
    return None


def find_filesystem_reasons(stack: Stack, fstab_options: Sequence[str]) -> list[Reason]:
    """Return the causes in the filesystem itself; empty for a bare device."""
    filesystem = stack.filesystem
    if not filesystem:
        return []
    reasons = [refusal] if (refusal := find_refusal(stack)) else []
    wanted = any(option.split("=")[0] == "discard" for option in fstab_options)
    offered = [top.limits.can_discard for top in stack.find_tops()]
    if wanted and not find_online_discard(filesystem) and offered and not any(offered):
        observed, at = "fstab asks for discard, but mountinfo does not show it", filesystem.point
        reasons.append(make_reason("discard-option-dropped", at, observed, mount=at))
    return [*reasons, *find_filesystem(filesystem.kind).find_reasons(stack, filesystem)]
