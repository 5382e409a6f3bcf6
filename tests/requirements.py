"""Requirements of tests: skip a test with the reason, or fail where the test must run.

OPWATCH_REQUIRE=kernel,vm turns "cannot run" into a failure for these kinds.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

_CHECKOUT = Path(__file__).resolve().parents[1]


def skip_or_fail(kind: str, reason: str) -> NoReturn:
    """Skip the test for this reason, or fail if `kind` is required."""
    if kind in os.environ.get("OPWATCH_REQUIRE", "").split(","):
        pytest.fail(f"{kind} tests are required, but {reason}", pytrace=False)
    pytest.skip(reason)


def require_kernel() -> None:
    """Require root, BTF, the tracer, loop devices, and fio."""
    if os.geteuid() != 0:
        skip_or_fail("kernel", "it needs root")
    if not Path("/sys/kernel/btf/vmlinux").exists():
        skip_or_fail("kernel", "this kernel has no BTF")
    if not Path("/dev/loop-control").exists():
        skip_or_fail("kernel", "this kernel has no loop devices")
    for tool in ("losetup", "fio", "blkdiscard", "bpftool"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            skip_or_fail("kernel", f"{tool} is not installed")
    try:
        from opwatch._native import Tracer  # noqa: F401
    except ImportError:
        skip_or_fail("kernel", "opwatch was built without its tracer")


@functools.cache
def _is_open_to_nobody() -> bool:
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable]
    argv += ["-c", "import opwatch.tools.cli"]
    environment = os.environ | {"PYTHONPATH": str(_CHECKOUT)}
    return subprocess.run(argv, capture_output=True, check=False, cwd="/", env=environment).returncode == 0


def require_nobody(kind: str = "kernel") -> None:
    """Require that an unprivileged user can run the code under test, which a closed home directory
    prevents."""
    if not _is_open_to_nobody():
        skip_or_fail(
            kind, f"user 65534 cannot start {sys.executable} with {_CHECKOUT}: a folder above is closed to it"
        )


def require_drive() -> None:
    """Require everything for a simulated drive: root, FUSE, loop devices, the server, and fio."""
    if os.geteuid() != 0:
        skip_or_fail("kernel", "it needs root")
    from opwatch.drive import server
    from opwatch.errors import Unsupported

    try:
        server.require_program()
    except Unsupported as error:
        skip_or_fail("kernel", str(error))
    for tool in ("losetup", "fio", "blkdiscard", "mkfs.ext4"):
        if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            skip_or_fail("kernel", f"{tool} is not installed")
