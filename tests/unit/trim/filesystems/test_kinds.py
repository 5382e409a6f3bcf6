"""The table of filesystems."""

from __future__ import annotations

import pytest

from opwatch.trim.audit.programs import PROGRAMS
from opwatch.trim.filesystems.fuse import Fuse, FuseBlk
from opwatch.trim.filesystems.kinds import Other, find_filesystem


@pytest.mark.parametrize(
    ("name", "expected"), [("fuseblk", FuseBlk), ("fuse.sshfs", Fuse), ("iso9660", Other), ("", Other)]
)
def test_fuse_servers_and_unknown_names_are_found(name: str, expected: type) -> None:
    assert type(find_filesystem(name)) is expected


def test_extents_are_counted_by_a_program_of_the_same_filesystem() -> None:
    traced = {
        program.filesystem: find_filesystem(program.filesystem) for program in PROGRAMS if program.filesystem
    }
    names = {program.name: program.filesystem for program in PROGRAMS}
    assert traced
    assert all(names[kind.extent_program or ""] == name for name, kind in traced.items())
