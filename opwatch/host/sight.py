"""What of the processes of this machine we may not see."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from opwatch.host import capabilities
from opwatch.host.usage import Mount

# Inodes of the first PID and user namespaces (linux/proc_ns.h).
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
_FIRST_USER_NAMESPACE = "user:[4026531837]"
_HIDING = re.compile(r"hidepid=(1|2|4|noaccess|invisible|ptraceable)")


def out_of_sight(proc: Path, mounts: Sequence[Mount]) -> list[str]:
    """Each kind of process that this /proc does not show us, with its reason; empty when it shows all.
    `mounts` are our own."""
    unseen = []
    if _hides(proc, mounts) and not _may_see_all(proc):
        unseen.append(f"processes of other users: {proc} hides them (hidepid)")
    with contextlib.suppress(OSError):
        if str((proc / "self" / "ns" / "pid").readlink()) != _FIRST_PID_NAMESPACE:
            unseen.append("processes outside this PID namespace, as of the host of a container")
    return unseen


def _hides(proc: Path, mounts: Sequence[Mount]) -> bool:
    """Whether the /proc that is seen, mounted last, is one with hidepid, and we are not in its group."""
    options = [mount.super_options for mount in mounts if mount.point == str(proc)][-1:]
    for option in options[0] if options else ():
        if _HIDING.fullmatch(option):
            # The group is for the older two; ptraceable asks for the right to trace alone.
            group = next((option[4:] for option in options[0] if option.startswith("gid=")), "")
            groups = {str(number) for number in (os.getegid(), *os.getgroups())}
            return option in ("hidepid=4", "hidepid=ptraceable") or group not in groups
    return False


def _may_see_all(proc: Path) -> bool:
    """Root of a user namespace of its own, and root without this capability, may not."""
    with contextlib.suppress(OSError):
        if str((proc / "self" / "ns" / "user").readlink()) != _FIRST_USER_NAMESPACE:
            return False
    return capabilities.has("CAP_SYS_PTRACE")
