"""What a test needs and what happens when it is not there: it says why, or fails where it must run.

OPWATCH_REQUIRE=kernel,vm turns "cannot run" of these kinds into a failure.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def unmet(kind: str, reason: str) -> NoReturn:
    """This test cannot run, for this reason: skip it, or fail if `kind` is required."""
    if kind in os.environ.get("OPWATCH_REQUIRE", "").split(","):
        pytest.fail(f"{kind} tests are required, but {reason}", pytrace=False)
    pytest.skip(reason)


def require_kernel() -> None:
    """Root, BTF, the tracer, a way to make disks, and fio to load them."""
    if os.geteuid() != 0:
        unmet("kernel", "it needs root")
    if not Path("/sys/kernel/btf/vmlinux").exists():
        unmet("kernel", "this kernel has no BTF")
    if not Path("/dev/loop-control").exists():
        unmet("kernel", "this kernel has no loop devices")
    for tool in ("losetup", "fio", "blkdiscard", "bpftool"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            unmet("kernel", f"{tool} is not installed")
    try:
        from opwatch._native import Tracer  # noqa: F401
    except ImportError:
        unmet("kernel", "opwatch was built without its tracer")


def require_drive() -> None:
    """What a simulated drive needs: root, FUSE, loop devices, its server, and fio to load it."""
    if os.geteuid() != 0:
        unmet("kernel", "it needs root")
    from opwatch.drive import server
    from opwatch.errors import Unsupported

    try:
        server.require_program()
    except Unsupported as error:
        unmet("kernel", str(error))
    for tool in ("losetup", "fio", "blkdiscard", "mkfs.ext4"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            unmet("kernel", f"{tool} is not installed")
