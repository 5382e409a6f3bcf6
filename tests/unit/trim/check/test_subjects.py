"""Mounts that `opwatch trim check --all` covers."""

from __future__ import annotations

import pytest

from opwatch.errors import UsageError
from opwatch.host.usage import Usage, parse_mountinfo
from opwatch.tools.runs.checking import CheckRun
from opwatch.trim.check.schedule import Schedule
from tests.unit.support.sysfs import Tree

MOUNTS = """
30 1 8:1 / / rw - ext4 /dev/sda1 rw
31 30 8:1 /srv /srv rw - ext4 /dev/sda1 rw
32 30 0:40 / /run/doc rw - fuse.portal /dev/fuse rw
33 30 0:41 / /tmp rw - tmpfs tmpfs rw
34 30 7:0 / /snap/x ro - squashfs /dev/loop0 ro
35 30 0:42 / /tank rw - zfs tank rw
36 30 8:2 / /old rw - xfs /dev/sda2 rw
37 30 8:3 / /old rw - xfs /dev/sda3 rw
"""


def test_each_disk_filesystem_is_listed_once_at_a_visible_mount(tree: Tree) -> None:
    usage = Usage(parse_mountinfo(MOUNTS), [], {})
    run = CheckRun(0, tree.devices, usage, Schedule())
    mounts = [(subject.mount.dev, subject.mount.point) for subject in run.find_all() if subject.mount]
    assert mounts == [("8:1", "/"), ("0:42", "/tank"), ("8:3", "/old")]


def test_devices_without_a_medium_are_refused(tree: Tree) -> None:
    run = CheckRun(0, tree.devices, Usage(parse_mountinfo(MOUNTS), [], {}), Schedule())
    with pytest.raises(UsageError, match=r"^/dev/null .*; opwatch devices "):
        list(run.find_by_path("/dev/null"))
    tree.add_disk("zram7", "252:7", sectors=0)
    with pytest.raises(UsageError, match=r"^zram7 "):
        list(run.find_on_device("zram7"))
