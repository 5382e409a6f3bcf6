"""Pages that older kernels pass to the driver without a bio: opwatch reports the missing counts."""

from __future__ import annotations

from pathlib import Path

from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.stacked import create_zram
from tests.vm.guest.support.watcher import start_watch

# Kernels since 6.3 have no bdev_read_page().
TIERS = ()
PAGES = 211


def has_page_calls() -> bool:
    return any(line.endswith(" bdev_read_page\n") for line in Path("/proc/kallsyms").open())


def build_cached_read(disk: str) -> list[str]:
    return ["dd", f"if=/dev/{disk}", "of=/dev/null", "bs=4k", f"count={PAGES}", "status=none"]


def test_pages_without_a_bio_are_counted_or_reported_as_missing() -> None:
    with create_zram(64 << 20) as disk, start_watch("--dev", disk, "--waf", "0", "0.2") as watcher:
        run_command(*build_cached_read(disk))
        assert watcher.interrupt_opwatch() == 0
        [summary] = [line for line in watcher.lines if line["type"] == "summary"]
    said = any("rw_page" in sentence for sentence in summary["lacks"])
    assert said is has_page_calls()
    read = summary["ops"].get("read", {"bytes": 0})["bytes"]
    assert said or read >= PAGES * 4096, summary["ops"]


def test_plain_output_mentions_rw_page_when_the_kernel_has_page_calls() -> None:
    with create_zram(64 << 20) as disk:
        shown = run_opwatch("--dev", disk, "--waf", "0", "1", "--", *build_cached_read(disk))
    assert shown.returncode == 0, shown.stderr
    assert ("rw_page" in shown.stdout) is has_page_calls()
