"""A node is opened for what it is, not for what it is called."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from opwatch.collectors.space.f2fs import read_free
from opwatch.collectors.space.raw_disk import open_device
from opwatch.errors import OpwatchError, RefusedError
from opwatch.host.device import BlockDevice
from tests.unit.support.sysfs import Tree


def test_a_node_of_something_else_is_refused(tmp_path: Path) -> None:
    """/dev/null is a node of 1:3, and no disk: neither as another number, nor as its own, is it one."""
    tree = Tree(tmp_path)
    for number in ("8:1", "1:3"):
        device = dataclasses.replace(_disk(tree, number), name="null")
        before = len(os.listdir("/proc/self/fd"))
        with pytest.raises(RefusedError, match="/dev/null leads to another device"):
            open_device(device)
        with pytest.raises(RefusedError, match="/dev/null leads to another device"):
            read_free(device)
        assert len(os.listdir("/proc/self/fd")) == before


def test_no_node_is_an_error_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(OpwatchError, match="/dev/opwatch-none: No such file"):
        open_device(_disk(Tree(tmp_path), "8:1", "opwatch-none"))


def _disk(tree: Tree, number: str, name: str = "") -> BlockDevice:
    name = name or f"disk-{number.replace(':', '-')}"
    tree.disk(name, number)
    return tree[name]
