"""The exporter serves what happened, whatever disks and drives do meanwhile."""

from __future__ import annotations

import contextlib
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opwatch.host.scratch import ScratchDisk
from opwatch.recording.reading.reader import RecordedRun
from opwatch.samples.entries import DiskAdded, RunEnded
from opwatch.trace.abi import OpSample
from tests.kernel.support.drives import create_drive
from tests.kernel.support.exporting import Series, make_series, start_exporter
from tests.kernel.support.load import reads, run_mixture, writes
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_nobody

_SCRAPE_S = 0.05


def read_ends(path: Path) -> dict[str, tuple[dict[str, OpSample], dict[str, OpSample]]]:
    """Return the first and the last sample of each disk in a recording."""
    kept = RecordedRun(path)
    firsts, places, lasts = {}, {}, {}
    try:
        for entry in kept.iter_entries():
            if isinstance(entry, DiskAdded):
                places[entry.place] = entry.sample.disk.device
                firsts[entry.sample.disk.device] = entry.sample.reading.sample.ops
            elif isinstance(entry, RunEnded):
                lasts = {places[place]: one.reading.sample.ops for place, one in entry.samples.items()}
    finally:
        kept.close()
    return {name: (ops, lasts[name]) for name, ops in firsts.items()}


def predict_series(device: str, op: str, then: OpSample, now: OpSample) -> dict[Series, float]:
    """Return the counts that the exporter must serve for an operation between two samples of a recording."""
    labels = {"device": device, "op": op}
    completed = float(now.completed - then.completed)
    series = {
        make_series("io_duration_seconds_count", **labels): completed,
        make_series("io_duration_seconds_bucket", **labels, le="+Inf"): completed,
        make_series("io_errors_total", **labels): float(now.errors - then.errors),
    }
    if op != "flush":
        series[make_series("io_bytes_total", **labels)] = float(now.bytes - then.bytes)
    return series


def test_counts_equal_those_of_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.opw"
    with contextlib.ExitStack() as stack:
        disks = [stack.enter_context(ScratchDisk(64 << 20)) for _ in range(8)]
        names = [word for disk in disks for word in ("--dev", disk.name)]
        exporter = stack.enter_context(start_exporter(*names))
        before = exporter.scrape()
        argv = [
            sys.executable,
            "-P",
            "-m",
            "opwatch",
            "record",
            "-q",
            "-o",
            str(path),
            "--every",
            "0.5",
            *names,
        ]
        recorder = subprocess.Popen(argv)
        while not path.exists():
            assert recorder.poll() is None
            time.sleep(0.05)
        time.sleep(1)
        for count, disk in enumerate(disks, 1):
            run_mixture(disk.node)
            writes(disk.node, 10 * count)
            exporter.scrape()
        after = exporter.scrape()
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(30) == 0
    compared = 0
    for device, (then, now) in read_ends(path).items():
        for op in ("read", "write", "flush", "discard"):
            for series, expected in predict_series(device, op, then[op], now[op]).items():
                assert (series, after[series] - before[series]) == (series, expected)
                compared += expected > 0
            # Each tracer takes its own times, some microseconds apart.
            total = make_series("io_duration_seconds_sum", device=device, op=op)
            expected = (now[op].sum_ns - then[op].sum_ns) / 1e9
            slack = 20e-6 * (now[op].completed - then[op].completed)
            assert after[total] - before[total] == pytest.approx(expected, abs=slack)
        assert after[make_series("unexplained_requests_total", device=device)] == 0
    assert compared > 8 * 10


def test_disk_comes_and_goes_while_scrapes_go_on() -> None:
    with start_exporter() as exporter:
        times = []
        for count in (20, 30):
            with ScratchDisk(64 << 20) as disk:
                watched = make_series("watched", device=disk.name)
                exporter.wait_for(lambda samples, series=watched: samples.get(series) == 1)  # type: ignore[misc]
                reads(disk.node, count)
                samples = exporter.scrape()
                labels = {"device": disk.name, "op": "read"}
                assert samples[make_series("io_duration_seconds_count", **labels)] == count
                name = disk.name
            begin = time.monotonic()
            while time.monotonic() - begin < 2:
                status, _, seconds = exporter.fetch()
                assert status == 200
                times.append(seconds)
            exporter.wait_for(lambda samples, name=name: make_series("watched", device=name) not in samples)  # type: ignore[misc]
        assert statistics.median(times) < _SCRAPE_S
        assert exporter.stop() == 0
        assert "Traceback" not in exporter.read_messages()


def test_hung_drive_delays_no_scrape_and_no_other_drive() -> None:
    with create_drive() as hung, create_drive() as well:
        names = [word for drive in (hung, well) for word in ("--dev", drive.device)]
        with start_exporter(*names, "--drives-every", "1s", "--drive-deadline", "1s") as exporter:
            devices = [Path(drive.device).name for drive in (hung, well)]

            def find(samples: dict[Series, float], name: str, device: str) -> float | None:
                for (found, labels), value in samples.items():
                    if found == f"opwatch_{name}" and ("device", device) in labels:
                        return value
                return None

            exporter.wait_for(
                lambda samples: all(
                    find(samples, "media_written_bytes_total", one) is not None for one in devices
                )
            )
            hung.inject_faults("log-slow=02:15s")

            def count_timeouts(samples: dict[Series, float]) -> float:
                return sum(
                    value
                    for (name, labels), value in samples.items()
                    if name == "opwatch_firmware_read_failures_total"
                    and {("device", devices[0]), ("reason", "timeout")} <= set(labels)
                )

            before = exporter.wait_for(lambda samples: count_timeouts(samples) == 1)
            times = [exporter.fetch()[2] for _ in range(50)]
            assert statistics.median(times) < _SCRAPE_S
            name = "firmware_read_timestamp_seconds"
            fresh = find(before, name, devices[1])
            assert fresh
            after = exporter.wait_for(lambda samples: (find(samples, name, devices[1]) or 0) > fresh + 2)
            assert count_timeouts(after) == 1
            assert find(after, name, devices[0]) == find(before, name, devices[0])
            # The process ends with its thread's command.
            assert exporter.stop() == 0


def test_memory_does_not_grow(disk: ScratchDisk) -> None:
    def read_resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4

    with start_exporter("--dev", disk.name) as exporter:
        sizes, descriptors = [], []
        for _ in range(2):
            for _ in range(500):
                assert exporter.fetch()[0] == 200
            sizes.append(read_resident(exporter.process.pid))
            descriptors.append(len(list(Path(f"/proc/{exporter.process.pid}/fd").iterdir())))
        assert sizes[1] - sizes[0] <= 256, sizes
        assert descriptors[1] - descriptors[0] <= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_cleanly(disk: ScratchDisk, number: signal.Signals) -> None:
    with start_exporter("--dev", disk.name) as exporter:
        with socket.create_connection(("127.0.0.1", exporter.port)):
            assert exporter.stop(number) == 0
        assert "Traceback" not in exporter.read_messages()


def test_hangup_reads_the_web_config_again(disk: ScratchDisk, tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("rate_limit:\n  burst: 1000\n  interval: 1s\n")
    with start_exporter("--dev", disk.name, "--web.config.file", str(file)) as exporter:
        for text, words in (
            ("rate_limt:\n", "rate_limt"),
            ("rate_limit:\n  burst: 1\n  interval: 1h\n", "again"),
        ):
            file.write_text(text)
            exporter.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + 10
            while words not in exporter.read_messages():
                assert time.monotonic() < deadline, exporter.read_messages()
                time.sleep(0.05)
        assert [exporter.fetch()[0] for _ in range(3)] == [200, 429, 429]


def test_hangup_does_not_drop_passwords_that_left_the_web_config(disk: ScratchDisk, tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text(
        "basic_auth_users:\n  alice: $2y$04$abcdefghijklmnopqrstuuLt5YyuJwNfU4KZQzBtUoRPaYwOqm4AK\n"
    )
    with start_exporter("--dev", disk.name, "--web.config.file", str(file)) as exporter:
        file.write_text("")
        exporter.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while "basic_auth_users is gone" not in exporter.read_messages():
            assert time.monotonic() < deadline, exporter.read_messages()
            time.sleep(0.05)
        assert exporter.fetch()[0] == 401


def test_port_in_use_is_reported(disk: ScratchDisk) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run_opwatch("exporter", "--dev", disk.name, "--web.listen-address", address)
    assert done.returncode == 1
    assert address in done.stderr
    assert "another process" in done.stderr


def test_exporter_without_privileges_names_them(disk: ScratchDisk) -> None:
    require_nobody()
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]
    argv += [sys.executable, "-P", "-m", "opwatch", "exporter", "--web.listen-address", "127.0.0.1:0"]
    done = subprocess.run(
        [*argv, "--dev", disk.node], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 4
    assert "CAP_BPF" in done.stderr
