"""Requirements of tests: a test that cannot run gives the reason; OPWATCH_REQUIRE turns it into a failure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.requirements import unmet

LACKS = "OPWATCH_VM_LACKS"
IN_GUEST = "OPWATCH_VM_GUEST"


def lacks() -> dict[str, str]:
    """Return the features that this guest's kernel lacks, and why, from kernels.toml."""
    known: dict[str, str] = json.loads(os.environ.get(LACKS, "{}"))
    return known


def need_tool(name: str) -> str:
    """Return the path of a program in the host's userspace; fail or skip if it is not installed."""
    path = shutil.which(name)
    if path is None:
        unmet("vm", f"{name} is not installed")
    return path


def need_feature(name: str, present: bool, complaint: str = "") -> None:
    """Check a kernel feature against the support matrix: skip if both lack it, fail on disagreement."""
    if present and name in lacks():
        pytest.fail(f"this kernel has {name}, and kernels.toml says it has not", pytrace=False)
    if present:
        return
    if name in lacks():
        pytest.skip(f"{name}: {lacks()[name]}")
    pytest.fail(f"this kernel has no {name}, which kernels.toml does not say: {complaint}")


def need_module(name: str, *parameters: str) -> None:
    """Load a module; fail if it is missing and the support matrix does not say so."""
    if not parameters and Path("/sys/module", name).is_dir():
        need_feature(name, present=True)
        return
    argv = ["modprobe", name, *parameters]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    need_feature(name, done.returncode == 0, done.stderr.strip())
