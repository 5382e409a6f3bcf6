"""The table of kinds of layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opwatch.trim.layers.bcache import Bcache
from opwatch.trim.layers.cache import Cache
from opwatch.trim.layers.disk import Disk
from opwatch.trim.layers.dm import Dm, Linear
from opwatch.trim.layers.dm_raid import DmRaid
from opwatch.trim.layers.kinds import BY_KIND, find_kind
from opwatch.trim.layers.memory import MemoryDisk
from opwatch.trim.layers.multipath import Multipath
from opwatch.trim.layers.nvme import MultipathHead, Nvme
from opwatch.trim.stack.facts import LayerFacts
from opwatch.trim.stack.layers import Kind
from tests.unit.support.trim_evidence import make_layer


def test_every_kind_has_an_entry() -> None:
    assert set(BY_KIND) == set(Kind)


@pytest.mark.parametrize(
    ("device", "kind", "expected"),
    [
        ("sda", Kind.DISK, Disk),
        ("nvme0c0n1", Kind.DISK, Nvme),
        ("nvme0n1", Kind.MULTIPATH, MultipathHead),
        ("bcache0", Kind.DISK, Bcache),
        ("zram0", Kind.DISK, MemoryDisk),
        ("pmem0", Kind.DISK, MemoryDisk),
    ],
)
def test_disks_are_found_by_device_name(device: str, kind: Kind, expected: type) -> None:
    assert type(find_kind(make_layer(device, "8:0", kind))) is expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [("linear", Linear), ("era", Cache), ("multipath", Multipath), ("linear+striped", Dm), (None, Dm)],
)
def test_mapped_devices_are_found_by_target(target: str | None, expected: type) -> None:
    assert type(find_kind(make_layer("dm-0", "253:0", Kind.DM, target=target))) is expected


def test_raid_facts_make_an_array_and_an_unknown_raid_table_does_not() -> None:
    array = make_layer("dm-0", "253:0", Kind.DM, level="raid5", raid_disks=3, chunk_bytes=65536)
    unknown = make_layer("dm-1", "253:1", Kind.DM, target="raid", granularity=512)
    assert type(find_kind(array)) is type(find_kind(unknown)) is DmRaid
    assert find_kind(array).find_granule(array) == (131072, 0)
    assert find_kind(unknown).find_granule(unknown) == (512, 0)


@pytest.mark.parametrize("kind", Kind)
def test_a_kind_answers_for_a_layer_without_known_facts(kind: Kind) -> None:
    """A recording may have any facts."""
    layer = replace(make_layer("dm-0", "253:0", kind), facts=LayerFacts())
    assert find_kind(layer).find_granule(layer) == (4096, 0)
    assert find_kind(layer).judge_proof(layer, has_map=False).down_to
