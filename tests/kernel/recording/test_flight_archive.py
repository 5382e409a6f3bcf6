"""`opwatch flight --archive` from a user's point of view."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import time
from pathlib import Path

from opwatch.host.scratch import ScratchDisk
from opwatch.sinks.export.table import compute_shard
from tests.kernel.recording.test_flight import FLIGHT, run_recorder
from tests.kernel.recording.test_record import write_repeatedly
from tests.kernel.support.drives import create_drive
from tests.kernel.support.filesystems import fill_space, make_filesystem, mount_device
from tests.kernel.support.watching import run_opwatch


def read_writes(folder: Path, disk: ScratchDisk) -> tuple[int, set[str]]:
    query = f"""
        SELECT coalesce(sum(requests), 0), list(DISTINCT host) FROM read_parquet('{folder}/*/*/*.parquet')
        WHERE device = '{disk.name}' AND op = 'write'
    """
    [[requests, hosts]] = importlib.import_module("duckdb").sql(query).fetchall()
    return requests, set(hosts)


def test_ended_recorder_has_archived_every_request(disk: ScratchDisk, tmp_path: Path) -> None:
    ring, fleet = tmp_path / "ring", tmp_path / "fleet"
    stat = Path("/sys/block", disk.name, "stat")
    with run_recorder(disk, ring, "--archive", str(fleet), "--archive-every", "day") as process:
        before = int(stat.read_text().split()[4])
        with write_repeatedly(disk.node):
            time.sleep(2)
        time.sleep(0.5)
        after = int(stat.read_text().split()[4])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    requests, hosts = read_writes(fleet, disk)
    assert requests == after - before > 0
    assert hosts == {os.uname().nodename}
    [path] = fleet.rglob("*.parquet")
    assert path.parent.name == f"shard={compute_shard(os.uname().nodename)}"
    assert [one for one in fleet.rglob("*") if one.is_file()] == [path]


def test_rows_wait_while_the_archive_is_full(disk: ScratchDisk, tmp_path: Path) -> None:
    ring, fleet = tmp_path / "ring", tmp_path / "small" / "fleet"
    with ScratchDisk(64 << 20) as small:
        make_filesystem("ext4", small.node, "-O", "^has_journal", "-m", "0")
        (tmp_path / "small").mkdir()
        with mount_device(small.node, tmp_path / "small"):
            with run_recorder(disk, ring, "--archive", str(fleet)) as process:
                with write_repeatedly(disk.node):
                    time.sleep(1)
                fill_space(tmp_path / "small" / "ballast", left=0)
                process.send_signal(signal.SIGTERM)
                assert process.wait(60) == 0
                assert process.stderr
                assert "cannot be written" in process.stderr.read()
            assert not list(fleet.rglob("*.parquet"))
            assert not list(fleet.rglob("*.unfinished"))
    done = run_opwatch("flight", "archive", "-o", str(tmp_path / "other"), "--ring", str(ring))
    assert done.returncode == 0, done.stderr
    assert read_writes(tmp_path / "other", disk)[0] > 0


def test_archive_has_the_counters_of_the_drive(tmp_path: Path) -> None:
    ring, fleet = tmp_path / "ring", tmp_path / "fleet"
    with create_drive(size=256 << 20) as drive:
        argv = [*FLIGHT, "--dev", drive.device, "--ring", str(ring), "--every", "0.1", "--waf", "0.2"]
        argv += ["--archive", str(fleet), "--discards"]
        with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            while "keeping the last" not in (line := process.stderr.readline()):
                assert line, "it has ended"
            subprocess.run(
                ["dd", "if=/dev/urandom", f"of={drive.device}", "bs=1M", "count=64", "oflag=direct"],
                check=True,
                stderr=subprocess.DEVNULL,
            )
            subprocess.run(["blkdiscard", "-l", str(32 << 20), drive.device], check=True)
            time.sleep(1.5)
            truth = drive.read_truth()
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    duckdb = importlib.import_module("duckdb")
    columns = "host_bytes, host_quantum_bytes, media_bytes, media_quantum_bytes, serial, firmware, lacks"
    query = f"SELECT {columns} FROM read_parquet('{fleet}/*/*/*.parquet') WHERE op = 'write' ORDER BY time"
    *_, row = duckdb.sql(query).fetchall()
    host, host_step, media, media_step, serial, firmware, lacks = row
    assert lacks == []
    assert 0 <= truth["host_write_bytes"] - host < host_step
    assert 0 <= truth["nand_write_bytes"] - media < media_step
    assert serial == truth["serial"]
    assert firmware
    query = (
        f"SELECT bytes, whole_granule_bytes FROM read_parquet('{fleet}/*/*/*.parquet') WHERE op = 'discard'"
    )
    assert [sum(column) for column in zip(*duckdb.sql(query).fetchall(), strict=True)] == [32 << 20, 32 << 20]
