"""Requirements of tests: a test that cannot run gives the reason; OPWATCH_REQUIRE turns it into a failure."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.requirements import skip_or_fail

MISSING_FEATURES = "OPWATCH_VM_LACKS"
IN_GUEST = "OPWATCH_VM_GUEST"


def read_missing_features() -> dict[str, str]:
    """Return the features that this guest's kernel lacks, and why, from kernels.toml."""
    known: dict[str, str] = json.loads(os.environ.get(MISSING_FEATURES, "{}"))
    return known


def need_tool(name: str) -> str:
    """Return the path of a program in the host's userspace; fail or skip if it is not installed."""
    path = shutil.which(name)
    if path is None:
        skip_or_fail("vm", f"{name} is not installed")
    return path


def need_feature(name: str, present: bool, complaint: str = "") -> None:
    """Check a kernel feature against the support matrix: skip if both lack it, fail on disagreement."""
    if present and name in read_missing_features():
        pytest.fail(f"this kernel has {name}, and kernels.toml says it has not", pytrace=False)
    if present:
        return
    if name in read_missing_features():
        pytest.skip(f"{name}: {read_missing_features()[name]}")
    pytest.fail(f"this kernel has no {name}, which kernels.toml does not say: {complaint}")


def need_module(name: str, *parameters: str) -> None:
    """Load a module; fail if it is missing and the support matrix does not say so."""
    if not parameters and Path("/sys/module", name).is_dir():
        need_feature(name, present=True)
        return
    argv = ["modprobe", name, *parameters]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    need_feature(name, done.returncode == 0, done.stderr.strip())
