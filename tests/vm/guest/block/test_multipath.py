"""One namespace, two controllers: a head without requests, and two paths with requests."""

from __future__ import annotations

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.workload import Fio, run_fio
from tests.vm.requirements import need_feature

DEVICES = ("nvme-multipath",)
# Tests of a recipe; the tests that use it fail with it.
TIERS = ()


def test_head_has_two_hidden_paths() -> None:
    head = sysfs.disk("opw-nvme-multipath")
    assert len(sysfs.list_paths(head)) == 2
    assert all(sysfs.is_hidden(path) for path in sysfs.list_paths(head))


def test_paths_carry_the_requests() -> None:
    head = sysfs.disk("opw-nvme-multipath")
    before = [sysfs.read_stat(path) for path in sysfs.list_paths(head)]
    counts = run_fio(head, Fio("randread", 3001))
    after = [sysfs.read_stat(path) for path in sysfs.list_paths(head)]
    assert counts.reads == 3001
    read = sum((b - a).read_bytes for a, b in zip(before, after, strict=True))
    assert read == counts.read_bytes


def test_head_also_counts_the_requests() -> None:
    head = sysfs.disk("opw-nvme-multipath")
    before = sysfs.read_stat(head)
    counts = run_fio(head, Fio("randread", 101))
    delta = sysfs.read_stat(head) - before
    need_feature("nvme-head-stat", delta.read_bytes > 0)
    assert (delta.reads, delta.read_bytes) == (101, counts.read_bytes)
