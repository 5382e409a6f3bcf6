"""Write amplification in the live view, measured by a thread that no sample waits for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.drives import MIB, create_drive
from tests.kernel.support.watching import parse_lines, run_opwatch
from tests.requirements import require_drive

LOAD = (
    "fio --name=x --filename={} --rw=randwrite --bs=16k --size=48m --time_based --runtime=4 --rate=60m "
    "--norandommap --direct=1 --ioengine=libaio --iodepth=4 --output=/dev/null"
)


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def test_live_waf_matches_the_drives_counters() -> None:
    with create_drive() as one:
        before = one.read_truth()
        load = LOAD.format(one.device).split()
        done = run_opwatch("--dev", one.device, "--json", "--waf", "0.5", "1", "--", *load)
        after = one.read_truth()
        assert done.returncode == 0, done.stderr
        *intervals, summary = parse_lines(done.stdout)
        figures = [
            interval["waf"]
            for interval in intervals
            if interval["waf"] and interval["waf"]["waf"] is not None
        ]
        assert figures
        assert summary["waf"]["waf"] is not None and summary["waf"]["source"].startswith("log 22h")
        host = after["host_write_bytes"] - before["host_write_bytes"]
        nand = after["nand_write_bytes"] - before["nand_write_bytes"]
        # The last sample is at most half a second old, and amplification is nearly constant by then.
        assert summary["waf"]["waf"] == pytest.approx(nand / host, rel=0.2)
        rates = [figure for figure in figures if figure["nand_bytes_per_s"] is not None]
        assert rates
        assert (
            abs(rates[-1]["nand_bytes_per_s"] - nand / 4)
            <= rates[-1]["nand_error_bytes_per_s"] + 0.3 * nand / 4
        )


def test_no_sample_waits_for_a_slow_page() -> None:
    with create_drive() as one:
        one.inject_faults(*(f"log-slow={page}:3s" for page in ("02", "09", "22", "c0")))
        done = run_opwatch("--dev", one.device, "--json", "--waf", "0.1", "0.2", "20")
        *intervals, summary = parse_lines(done.stdout)
        assert len(intervals) == 20
        # A sample of the pages takes twelve seconds, and every interval is shorter than a single page takes.
        assert max(interval["interval_s"] for interval in intervals) < 3
        assert summary["waf"] is None


def test_waf_is_missing_when_disabled_or_without_counters() -> None:
    with create_drive() as one, ScratchDisk(16 * MIB) as disk:
        for argv in (("--dev", one.device, "--waf", "0"), ("--dev", disk.node)):
            done = run_opwatch(*argv, "--json", "0.3", "3")
            assert [interval["waf"] for interval in parse_lines(done.stdout)] == [None] * 4
        done = run_opwatch("--dev", one.device, "--json", "0.3", "3")
        assert any(interval["waf"] for interval in parse_lines(done.stdout))


def test_plain_output_has_a_waf_line_per_reading() -> None:
    with create_drive() as one:
        load = LOAD.format(one.device).split()
        done = run_opwatch("--dev", one.device, "--waf", "1", "0.5", "--", *load)
        shown = [
            line for line in done.stdout.splitlines() if line.startswith(Path(one.device).name + ": WAF")
        ]
        assert 2 <= len(shown) <= 6
        assert any("±" in line or "exactly" in line for line in shown)
        assert max(map(len, done.stdout.splitlines())) <= 80


def test_slowly_refreshed_pages_are_reported_as_not_moved() -> None:
    """Live, in the summary and at the end of opwatch waf: "the host wrote nothing" would be wrong."""
    with create_drive() as one:
        one.inject_faults("refresh=600")
        load = ["dd", "if=/dev/zero", f"of={one.device}", "bs=1M", "count=24", "oflag=direct", "status=none"]
        slow = ["sh", "-c", f"sleep 3; {' '.join(load)}; sleep 3"]
        done = run_opwatch("--dev", one.device, "--json", "--waf", "0.5", "1", "--", *slow)
        summary = parse_lines(done.stdout)[-1]
        assert summary["waf"]["waf"] is None
        assert "25.2 MB" in summary["waf"]["reason"]
        assert "opwatch waf --refresh 10m" in summary["waf"]["reason"]
        ended = run_opwatch("waf", "--dev", one.device, "--settle", "1s", "--json", "--", *load)
        assert ended.returncode == 6
        assert "have not changed" in ended.stderr
        assert "wrote nothing" not in summary["waf"]["reason"] + ended.stderr


def test_summary_gives_a_reason_when_counters_become_unreadable() -> None:
    with create_drive() as one:
        script = f"sleep 2; {sys.executable} -m opwatch drive fault {one.name} log-fail=22 log-fail=c0"
        done = run_opwatch(
            "--dev", one.device, "--json", "--waf", "0.3", "0.5", "--", "sh", "-c", f"{script}; sleep 2"
        )
        assert done.returncode == 0, done.stderr
        summary = parse_lines(done.stdout)[-1]
        assert summary["waf"]["waf"] is None
        assert summary["waf"]["reason"].startswith("counters cannot be read: ")


def test_summary_takes_a_final_reading() -> None:
    with create_drive() as one:
        load = ["dd", "if=/dev/zero", f"of={one.device}", "bs=1M", "count=48", "oflag=direct", "status=none"]
        slow = ["sh", "-c", f"sleep 3; {' '.join(load)}"]
        done = run_opwatch("--dev", one.device, "--json", "--waf", "1h", "1", "--", *slow)
        summary = parse_lines(done.stdout)[-1]
        # The first sample precedes the load, and the next regular one would come an hour later.
        assert summary["waf"]["waf"] is not None, summary["waf"]
