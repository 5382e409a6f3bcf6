"""The seed of a btrfs: devices that btrfs only reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from opwatch.collectors.space import btrfs as btrfs_geometry
from opwatch.collectors.space.btrfs import BtrfsDevice, BtrfsGeometry
from opwatch.collectors.stack import filesystem
from opwatch.errors import PermissionMissing
from opwatch.host.usage import Mount
from opwatch.trim.check.prediction import Outlook, predict_trim
from opwatch.trim.filesystems.btrfs import BtrfsFacts
from opwatch.trim.stack.layers import Stack
from tests.unit.support.sysfs import SSD_QUEUE, write_attributes
from tests.unit.support.trimcases import build_btrfs
from tests.unit.support.trimtree import Machine


def build_sprouted(root: Path, *, fsid: str) -> Machine:
    """A btrfs on sda, which is read-only and has this fsid, and on sdb."""
    m = Machine(root)
    build_btrfs(m, SSD_QUEUE, SSD_QUEUE)
    # a plain file is not a block device, and without a node the name counts
    for node in m.tree.dev.iterdir():
        node.unlink()
    for number, writeable, of in ((1, "0", fsid), (2, "1", "0123")):
        write_attributes(m.tree.sys / f"fs/btrfs/0123/devinfo/{number}", {"writeable": writeable, "fsid": of})
    return m


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A btrfs that reports the number of each device."""
    members = tuple(BtrfsDevice(number, 1 << 30, name) for number, name in ((1, "sda"), (2, "sdb")))
    monkeypatch.setattr(filesystem, "open_mount", lambda _: contextlib.nullcontext(0))
    monkeypatch.setattr(btrfs_geometry, "read_geometry", lambda _: BtrfsGeometry(16384, 4096, members))


def get_seeds(stack: Stack) -> tuple[str, ...] | None:
    assert stack.filesystem
    facts = stack.filesystem.facts
    assert isinstance(facts, BtrfsFacts)
    return facts.seeds


@pytest.mark.usefixtures("answering")
def test_seed_is_not_a_separate_device(tmp_path: Path) -> None:
    stack = build_sprouted(tmp_path, fsid="4567").read_stack()
    assert get_seeds(stack) == ("sda",)
    assert [top.device for top in stack.find_tops()] == ["sdb"]
    outlook = predict_trim(stack)
    assert outlook.outlook is Outlook.REACHES
    [said] = [reason for reason in outlook.reasons if reason.code == "btrfs-seed"]
    assert "sda" in said.observed
    assert "sda" in said.remedy


@pytest.mark.usefixtures("answering")
def test_read_only_device_is_not_a_seed(tmp_path: Path) -> None:
    stack = build_sprouted(tmp_path, fsid="0123").read_stack()
    assert get_seeds(stack) is None
    assert [top.device for top in stack.find_tops()] == ["sda", "sdb"]


def test_seed_is_unknown_without_permission_to_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def forbid_open(mount: Mount) -> Iterator[int]:
        raise PermissionMissing(mount.point)
        yield 0

    monkeypatch.setattr(filesystem, "open_mount", forbid_open)
    stack = build_sprouted(tmp_path, fsid="4567").read_stack()
    assert get_seeds(stack) is None
    assert [top.device for top in stack.find_tops()] == ["sda", "sdb"]
