"""Processes hidden from us by /proc."""

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


def list_hidden_processes(proc: Path, mounts: Sequence[Mount]) -> list[str]:
    """Return each kind of process hidden by /proc, with the reason; empty if all are visible. `mounts` are
    our own."""
    unseen = []
    if _hides_processes(proc, mounts) and not _may_see_all(proc):
        unseen.append(f"processes of other users: {proc} hides them (hidepid)")
    with contextlib.suppress(OSError):
        if str((proc / "self" / "ns" / "pid").readlink()) != _FIRST_PID_NAMESPACE:
            unseen.append("processes outside this PID namespace, such as those of a container's host")
    return unseen


def _hides_processes(proc: Path, mounts: Sequence[Mount]) -> bool:
    """Return True if the visible /proc, mounted last, has hidepid and we are not in the group."""
    options = [mount.super_options for mount in mounts if mount.point == str(proc)][-1:]
    for option in options[0] if options else ():
        if _HIDING.fullmatch(option):
            # The group applies to the two older modes; ptraceable requires the right to trace.
            group = next((option[4:] for option in options[0] if option.startswith("gid=")), "")
            groups = {str(number) for number in (os.getegid(), *os.getgroups())}
            return option in ("hidepid=4", "hidepid=ptraceable") or group not in groups
    return False


def _may_see_all(proc: Path) -> bool:
    """Return False for root in a separate user namespace, and for root without CAP_SYS_PTRACE."""
    with contextlib.suppress(OSError):
        if str((proc / "self" / "ns" / "user").readlink()) != _FIRST_USER_NAMESPACE:
            return False
    return capabilities.has_capability("CAP_SYS_PTRACE")
