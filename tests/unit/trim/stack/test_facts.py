"""Facts of layers: names and order in --json, and that the manual lists every fact."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from opwatch.trim.filesystems import kinds as filesystem_kinds
from opwatch.trim.filesystems.btrfs import BtrfsFacts
from opwatch.trim.layers import kinds as layer_kinds
from opwatch.trim.layers.disk import DiskFacts
from opwatch.trim.layers.loop import LoopFacts
from opwatch.trim.stack.facts import FilesystemFacts, LayerFacts, find_known_facts
from tests.unit.support.trim_evidence import make_layer

MANUAL = Path(__file__).parents[4] / "docs" / "method-trim.md"
KINDS = (*layer_kinds.list_facts(), *filesystem_kinds.list_facts())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_manual_names_every_fact(kind: type[LayerFacts | FilesystemFacts]) -> None:
    section = MANUAL.read_text().partition("## Facts of the layers")[2].partition("\n## ")[0]
    described = set(re.findall(r"`(\w+)`", section))
    assert {field.name for field in fields(kind)} <= described


def test_known_facts_are_listed_with_common_facts_last() -> None:
    disk = DiskFacts(bcache_discard=False, model="ACME", drivers=("sd", "ahci"), unpartitioned_bytes=0)
    assert list(find_known_facts(disk).items()) == [
        ("model", "ACME"),
        ("drivers", "sd ahci"),
        ("unpartitioned_bytes", 0),
        ("bcache_discard", False),
    ]
    filesystem = BtrfsFacts("host-managed", fsid="1234", profiles=())
    assert list(find_known_facts(filesystem).items()) == [
        ("fsid", "1234"),
        ("profiles", ""),
        ("zoned", "host-managed"),
    ]


def test_facts_of_another_kind_are_empty() -> None:
    disk = make_layer("sda", "8:0", model="ACME")
    assert disk.facts_as(DiskFacts).model == "ACME"
    assert disk.facts_as(LoopFacts) == LoopFacts()


def test_a_fact_that_no_kind_has_is_refused() -> None:
    with pytest.raises(TypeError, match="provisionig_mode"):
        make_layer("sda", "8:0", provisionig_mode="unmap")
