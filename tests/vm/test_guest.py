"""Runs every test file of guest/ on every kernel, each in a guest of its own."""

from __future__ import annotations

import sys

import pytest

from tests.vm import suite
from tests.vm.config import Kernel
from tests.vm.suite import GuestFile

FILES = suite.guest_files()


def _sink(data: bytes) -> None:
    sys.stdout.write(data.decode(errors="replace"))


@pytest.mark.parametrize("file", FILES, ids=[f.path.stem for f in FILES])
def test_in_guest(bootable: Kernel, file: GuestFile, report: list[str]) -> None:
    """No test fails there, and the skips are those of the support matrix."""
    if bootable.tier not in file.tiers:
        pytest.skip(f"kernel {bootable.name} is of the tier {bootable.tier!r}: {file.path.stem}")
    found = suite.run(bootable, file, _sink)
    report.append(f"{bootable.name} {file.path.stem}: {found.line()}")
    assert found.total > 0
    assert not found.failed
