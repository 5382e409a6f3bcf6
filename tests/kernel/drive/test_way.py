"""Host latency minus drive latency on a real block device: a delay on the path lies within the range, a delay
in the drive does not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest

from opwatch.collectors.firmware.own_latency import LatencyReader
from opwatch.collectors.firmware.way import TransportWatch, compare_polls
from opwatch.counters.latency.comparison import TransportTimes
from opwatch.host.device import Devices
from opwatch.tools.runs.backends import attach_tracer
from opwatch.tools.runs.live_watch import choose_leaves
from opwatch.trace.trust import account_losses
from tests.kernel.support.drives import Drive, create_drive, run_plain_fio
from tests.kernel.support.load import reads, writes
from tests.kernel.support.watching import ATTEMPTS, run_opwatch
from tests.requirements import require_drive, require_kernel

DELAY_NS = 20_000_000


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()
    require_kernel()


def watch_workload(
    one: Drive, workload: Callable[[], None]
) -> tuple[dict[str, TransportTimes], dict[str, float]]:
    """Return the path's reported times for a workload, and the true mean from host and drive in ns."""
    disk = Devices().resolve(one.device).disk
    leaves, _ = choose_leaves(Devices(), [disk.name])
    for _ in range(ATTEMPTS):
        with closing(LatencyReader(disk)) as reader, closing(attach_tracer("libbpf", leaves)) as tracer:
            watch = TransportWatch(disk, tracer, reader)
            first, before = watch.poll_drive(), one.read_truth()
            workload()
            after, last = one.read_truth(), watch.poll_drive()
        directions = compare_polls(first, last)
        if not any(drift.drift for drift in account_losses(first.before, last.before, 0).drift.values()):
            break
    truth = {}
    for name, times in directions.items():
        host = last.before.sample.ops[name].sum_ns - first.before.sample.ops[name].sum_ns
        own = after[f"timed_{name}_ns"] - before[f"timed_{name}_ns"]
        if times.requests:
            truth[name] = (host - own) / times.requests
    return directions, truth


@pytest.mark.parametrize("fault", ["way", "slow"])
def test_path_latency_range_contains_the_true_mean(fault: str) -> None:
    with create_drive(faults=(f"{fault}=20ms",)) as one:

        def run_workload() -> None:
            writes(one.device, 31)
            reads(one.device, 37)

        directions, truth = watch_workload(one, run_workload)
    for name, number in (("write", 31), ("read", 37)):
        times = directions[name]
        assert times.reason is None
        assert times.requests == times.commands >= number
        mean = times.way["mean"]
        assert mean.high is not None
        assert mean.low <= truth[name] <= mean.high
        # The drive is idle before and after, so no request is at an edge: the error is 1 µs on either side.
        assert mean.high - mean.low <= 2001
        if fault == "way":
            assert mean.low >= DELAY_NS - 1000
            assert times.drive["mean"].low < DELAY_NS
        else:
            assert mean.high < DELAY_NS
            assert times.drive["mean"].low >= DELAY_NS - 1000


def test_path_latency_range_is_wider_under_load() -> None:
    """The first and the last sample fall into a load: the host's true mean then covers a few other requests,
    and the range allows for them."""
    with create_drive(faults=("way=2ms",)) as one:
        load = threading.Thread(
            target=run_plain_fio,
            args=(one.device, "--rw=randread", "--bs=4k", "--iodepth=4", "--time_based", "--runtime=4"),
        )
        load.start()
        time.sleep(1)
        directions, _ = watch_workload(one, lambda: time.sleep(1))
        load.join()
    times = directions["read"]
    assert times.reason is None
    assert times.requests > 100
    mean = times.way["mean"]
    assert mean.high is not None
    # The width depends on the number of requests at the edges, which varies on a busy machine.
    assert 0 <= mean.low < mean.high
    assert mean.high >= 2_000_000 - 1000


def test_path_latency_is_unknown_when_commands_are_split() -> None:
    with create_drive() as one:
        directions, _ = watch_workload(one, lambda: bypass_block_layer(one))
    assert directions["write"].reason
    assert "split" in directions["write"].reason


def bypass_block_layer(one: Drive) -> None:
    """Send commands invisible to the block layer: writes to the drive's file, below the block device."""
    with (one.place.mount / "disk").open("r+b", buffering=0) as disk:
        for block in range(5):
            disk.seek(block * 4096)
            disk.write(bytes(4096))


def test_counters_latency_command_prints_path_latency() -> None:
    with create_drive(faults=("way=5ms",)) as one:
        shown = run_opwatch("counters", "--latency", "--dev", one.device, "--for", "300ms", "--json")
        assert shown.returncode == 0, shown.stderr
        document = json.loads(shown.stdout)
        assert document["type"] == "latency-way"
        assert document["seconds"] >= 0.3
        assert document["write"]["commands"] == 0
        shown = run_opwatch("counters", "--dev", one.device, "--for", "1s")
        assert shown.returncode == 2
