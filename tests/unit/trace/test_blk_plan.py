"""Slots for requests in flight: by the queues and tags in sysfs."""

from __future__ import annotations

import shutil

import pytest

from opwatch.collectors.block import blk
from opwatch.host.device import BlockDevice, Leaf
from tests.unit.support.sysfs import Tree


@pytest.fixture
def device(tree: Tree) -> BlockDevice:
    tree.add_disk("sdx", "65:112", tags=[62] * 4)
    return tree["sdx"]


def make_plan(*devices: BlockDevice, may_share: bool = True) -> blk.Plan:
    return blk.make_plan([Leaf(device, device) for device in devices], may_share=may_share)


def test_every_tag_of_every_queue_has_a_place(device: BlockDevice) -> None:
    [target] = make_plan(device).targets
    assert (target.queues, target.depth, target.stamp_mask) == (4, blk.SCHEDULER_TAGS, 0)
    assert make_plan(device).stamps == 4 * blk.SCHEDULER_TAGS


def test_queue_numbers_may_have_gaps(device: BlockDevice) -> None:
    shutil.rmtree(device.sysfs / "mq" / "1")
    [target] = make_plan(device).targets
    assert target.queues == 4


def test_queue_that_vanishes_during_planning_is_not_an_error(
    device: BlockDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = device.hardware_queues
    shutil.rmtree(device.sysfs / "mq" / "3")
    monkeypatch.setattr(BlockDevice, "hardware_queues", property(lambda _: listed))
    [target] = make_plan(device).targets
    assert (target.queues, target.depth) == (4, blk.SCHEDULER_TAGS)


def test_more_tags_than_memory_share_places(tree: Tree) -> None:
    """A host adapter with 4,096 tags, listed on each of its 64 queues."""
    tree.add_disk("sdy", "65:128", tags=[4096] * 64)
    [target] = make_plan(tree["sdy"]).targets
    assert (target.queues, target.depth) == (64, 4096)
    assert target.stamp_mask + 1 == make_plan(tree["sdy"]).stamps == blk.MAX_STAMPS


def test_tags_beyond_unshared_slots_have_no_slot(tree: Tree) -> None:
    tree.add_disk("sdy", "65:128", tags=[4096] * 64)
    [target] = make_plan(tree["sdy"], may_share=False).targets
    assert (target.depth, target.stamp_mask) == (blk.MAX_STAMPS // 64, 0)


def test_all_disks_together_are_bounded(tree: Tree) -> None:
    names = [f"nvme{900 + index}n1" for index in range(64)]
    for index, name in enumerate(names):
        tree.add_disk(name, f"259:{900 + index}", tags=[1 << 16] * 2)
    plan = make_plan(*(tree[name] for name in names))
    assert plan.stamps <= blk.MAX_STAMPS_TOTAL
    assert len({target.stamp_mask for target in plan.targets}) == 1
    assert [target.stamps for target in plan.targets] == [i << 16 for i in range(64)]
