"""scsi_debug: discards against its map, and injected errors, requeues and partial completions."""

from __future__ import annotations

from tests.vm.guest.support import sysfs
from tests.vm.guest.support.events import trace_block_events
from tests.vm.guest.support.scsidebug import BAD_SECTORS, Opts, load_scsi_debug
from tests.vm.guest.support.workload import Fio, discard_range, run_fio

# Tests of a recipe; the tests that use it fail with it.
TIERS = ()

READ_4K = Fio("read", 211, iodepth=4)


def test_map_follows_writes_and_discards() -> None:
    with load_scsi_debug(unmap_granularity=8, unmap_max_blocks=2048) as scsi:
        run_fio(scsi.name, Fio("write", 512))
        assert scsi.count_mapped_blocks() == 512
        before = sysfs.read_stat(scsi.name)
        discard_range(scsi.name, 0, 256 * 4096)
        delta = sysfs.read_stat(scsi.name) - before
        assert scsi.count_mapped_blocks() == 256
        assert delta.discard_bytes == 256 * 4096


def test_busy_host_requeues() -> None:
    with load_scsi_debug() as scsi, trace_block_events("block_rq_requeue", "block_rq_complete") as events:
        with scsi.inject_faults(Opts.HOST_BUSY, every_nth=7):
            counts = run_fio(scsi.name, READ_4K)
        assert counts.reads == 211
        assert events.count_lost_events() == 0
        assert events.count_events()["block_rq_requeue"] > 10


def test_short_transfer_completes_in_parts() -> None:
    with load_scsi_debug() as scsi, trace_block_events("block_rq_complete", "block_rq_issue") as events:
        before = sysfs.read_stat(scsi.name)
        with scsi.inject_faults(Opts.SHORT_TRANSFER, every_nth=5):
            counts = run_fio(scsi.name, READ_4K)
        delta = sysfs.read_stat(scsi.name) - before
        assert (counts.reads, counts.errors) == (211, 0)
        assert delta.read_bytes == 211 * 4096
        assert events.count_events()["block_rq_complete"] > delta.reads


def test_medium_error_fails_the_reads_of_bad_sectors() -> None:
    first = BAD_SECTORS.start * 512 // 4096 * 4096
    job = Fio("read", 5, iodepth=1, extra=(f"--offset={first}",), goes_on=True)
    with load_scsi_debug() as scsi, scsi.inject_faults(Opts.MEDIUM_ERROR):
        assert run_fio(scsi.name, job).errors == 2
