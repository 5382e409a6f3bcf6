"""Requirements with reasons: what cannot run says why, and OPWATCH_REQUIRE makes that a failure."""

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
    """What kernels.toml says this guest's kernel has not, and why."""
    known: dict[str, str] = json.loads(os.environ.get(LACKS, "{}"))
    return known


def need_tool(name: str) -> str:
    """The path of a program of the host's userspace."""
    path = shutil.which(name)
    if path is None:
        unmet("vm", f"{name} is not installed")
    return path


def need_feature(name: str, present: bool, complaint: str = "") -> None:
    """A feature of the kernel: is missing if and only if the support matrix says so."""
    if present and name in lacks():
        pytest.fail(f"this kernel has {name}, and kernels.toml says it has not", pytrace=False)
    if present:
        return
    if name in lacks():
        pytest.skip(f"{name}: {lacks()[name]}")
    pytest.fail(f"this kernel has no {name}, which kernels.toml does not say: {complaint}")


def need_module(name: str, *parameters: str) -> None:
    """Loads a module; its absence contradicts the matrix unless that says so."""
    if not parameters and Path("/sys/module", name).is_dir():
        need_feature(name, present=True)
        return
    argv = ["modprobe", name, *parameters]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    need_feature(name, done.returncode == 0, done.stderr.strip())
