"""The tree of stacked devices."""

from __future__ import annotations

import shutil

from opwatch.host.forest import Node, build_forest, natural_key
from tests.unit.support.sysfs import Tree


def format_outline(nodes: list[Node] | tuple[Node, ...], depth: int = 0) -> list[str]:
    lines = []
    for node in nodes:
        lines.append("  " * depth + node.device.name + (" again" if node.again else ""))
        lines += format_outline(node.children, depth + 1)
    return lines


def test_forest_lists_every_device_under_its_lower_devices(tree: Tree) -> None:
    assert format_outline(build_forest(tree.devices)) == [
        "sda",
        "  sda1",
        "  sda2",
        "    md0",
        "  sda3",
        "    dm-0",
        "sdb",
        "  sdb1",
        "  sdb2",
        "    md0 again",
        "  sdb3",
        "nvme0n1",
        "nvme1n1",
        "  nvme1c1n1",
        "  nvme1c2n1",
        "cciss/c0d0",
        "loop0",
        "loop1",
        "zram0",
    ]


def test_device_without_its_lower_devices_is_a_root(tree: Tree) -> None:
    for name in ("sda", "sdb"):
        shutil.rmtree(tree[name].sysfs)
    lines = format_outline(build_forest(tree.devices))
    assert "md0" in lines and "dm-0" in lines


def test_names_sort_numerically() -> None:
    names = ["sdb", "sdaa", "sda10", "sda2", "sdz", "nvme10n1", "nvme2n1", "loop1", "loop0"]
    assert sorted(names, key=natural_key) == [
        *("sda2", "sda10", "sdb", "sdz", "loop0", "loop1", "nvme2n1", "nvme10n1", "sdaa")
    ]
