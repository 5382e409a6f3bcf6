"""The simulated fleet: its counters, its answers to scrapes, and its samples in virtual time."""

from __future__ import annotations

import io
import math
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from opwatch.metrics import table
from opwatch.metrics.family import DurationCounts, MetricSamples
from opwatch.metrics.formats import ExpositionFormat, MetricEncoder
from opwatch.trace.abi import LATENCY
from opwatch.trace.hist import Histogram
from tests.fleet.scrape.answers import add_exporter, add_owners, build_samples
from tests.fleet.scrape.drives import EXACT, PAGE_EVERY_S, SimulatedDrive
from tests.fleet.scrape.plan import (
    DAY_S,
    HOUR_S,
    MODELS,
    DrivePlan,
    FaultKind,
    FleetPlan,
    HostPlan,
    InjectedFault,
    make_fleet,
)
from tests.fleet.scrape.replay import HostReplay, write_replay
from tests.fleet.scrape.server import choose_format, serve_fleet
from tests.section import DOCS

BEGIN_S = 20_000 * DAY_S


def make_drive(*faults: InjectedFault, model: int = 0, has_histograms: bool = False) -> SimulatedDrive:
    plan = DrivePlan("h", "nvme0n1", "S1", MODELS[model], 7, 1.0, 365.0 * DAY_S, 0.2, faults=faults)
    host = HostPlan("h", 5, 12.0, 0.1, 1.0, 0.5, (plan,))
    return SimulatedDrive(host, plan, BEGIN_S, has_histograms=has_histograms)


def advance_drive(drive: SimulatedDrive, to_s: float, step_s: float = 3600.0) -> None:
    while drive.now_s < to_s:
        drive.advance(min(to_s, drive.now_s + step_s))


def test_same_seed_gives_the_same_fleet() -> None:
    first, second = (make_fleet(3, n_hosts=5, n_disks=2, begin_s=0, days=9, faulty=1) for _ in range(2))
    assert first == second != make_fleet(4, n_hosts=5, n_disks=2, begin_s=0, days=9, faulty=1)


def test_fleet_has_the_faults_that_were_asked_for() -> None:
    fleet = make_fleet(1, n_hosts=30, n_disks=8, begin_s=BEGIN_S, faulty=3)
    assert {kind: len(fleet.list_faulty(kind)) for kind in FaultKind} == dict.fromkeys(FaultKind, 3)
    assert len({drive.serial for drive in fleet.list_drives()}) == 240


def test_counters_of_the_drive_never_go_backwards() -> None:
    drive = make_drive(*(InjectedFault(kind, BEGIN_S + HOUR_S, 2.0) for kind in FaultKind))
    last = (0, 0, 0)
    for hour in range(1, 48):
        drive.advance(BEGIN_S + hour * HOUR_S)
        assert drive.page
        now = (drive.page.host_bytes, drive.page.media_bytes or 0, drive.operations["read"].requests)
        assert all(a <= b for a, b in zip(last, now, strict=True))
        last = now


def test_reported_bytes_are_whole_quanta_below_the_true_bytes() -> None:
    drive = make_drive(model=2)
    advance_drive(drive, BEGIN_S + 6 * HOUR_S)
    model, page = MODELS[2], drive.page
    assert page and page.media_bytes is not None and model.media_quantum_bytes
    assert page.media_bytes % model.media_quantum_bytes == 0 == page.host_bytes % model.host_quantum_bytes
    assert page.media_bytes <= drive.media_bytes
    assert page.host_bytes <= drive.host_bytes


def test_waf_of_the_pages_jumps_by_the_factor_of_the_fault() -> None:
    ratios = []
    for faults in ((), (InjectedFault(FaultKind.WAF_JUMP, BEGIN_S, 3.0),)):
        drive = make_drive(*faults)
        assert drive.page and drive.page.media_bytes
        first = drive.page
        advance_drive(drive, BEGIN_S + DAY_S)
        last = drive.page
        assert first.media_bytes and last.media_bytes
        ratios.append((last.media_bytes - first.media_bytes) / (last.host_bytes - first.host_bytes))
    assert ratios[1] / ratios[0] == pytest.approx(3.0, rel=0.01)
    assert ratios[0] == pytest.approx(MODELS[0].waf, rel=0.35)


def test_slow_drive_is_slower_by_its_factor_at_the_same_load() -> None:
    usual, slow = make_drive(), make_drive(InjectedFault(FaultKind.SLOW, BEGIN_S, 2.5))
    for drive in (usual, slow):
        advance_drive(drive, BEGIN_S + HOUR_S)
    means = [drive.operations["read"].sum_ns / drive.operations["read"].requests for drive in (usual, slow)]
    assert means[1] / means[0] == pytest.approx(2.5, rel=0.01)


def test_histogram_has_the_mean_of_the_model_and_matches_the_exact_counts() -> None:
    drive = make_drive(has_histograms=True)
    drive.advance(BEGIN_S + 60)
    reads = drive.operations["read"]
    assert reads.requests == sum(reads.slots) == sum(drive.exact_reads.values()) > 10_000
    assert reads.sum_ns / reads.requests == pytest.approx(drive.mean_read_ns, rel=0.02)
    exact = Histogram(EXACT, [drive.exact_reads[slot] for slot in range(EXACT.slots)])
    for ratio in (0.5, 0.99, 0.999):
        coarse = Histogram(LATENCY, reads.slots).find_quantile(ratio)
        fine = exact.find_quantile(ratio)
        assert coarse and fine and coarse.value == pytest.approx(fine.value, rel=1 / 64 + 0.001)


def test_unreadable_drive_keeps_its_last_page_and_counts_failures() -> None:
    drive = make_drive(InjectedFault(FaultKind.UNREADABLE, BEGIN_S + HOUR_S))
    advance_drive(drive, BEGIN_S + 4 * HOUR_S)
    assert drive.page and drive.page.at_s < BEGIN_S + HOUR_S
    assert drive.failures["timeout"] == pytest.approx(3 * HOUR_S / PAGE_EVERY_S, abs=2)


def test_endurance_bounds_contain_the_true_end() -> None:
    drive = make_drive()
    advance_drive(drive, BEGIN_S + DAY_S)
    early_s, late_s = drive.find_endurance_bounds()
    # Power-on time has steps of an hour.
    assert early_s - 100 * HOUR_S < drive.compute_true_end() < late_s + 100 * HOUR_S


def test_refused_counter_is_not_served() -> None:
    drive = make_drive(InjectedFault(FaultKind.UNTRUSTED, BEGIN_S + HOUR_S))
    assert table.MEDIA_WRITTEN.name in build_samples([drive]).rows
    advance_drive(drive, BEGIN_S + 2 * HOUR_S)
    rows = build_samples([drive]).rows
    assert table.MEDIA_WRITTEN.name not in rows
    assert [labels[2] for labels, _ in rows[table.REFUSED.name]] == ["media"]


def make_host(n_drives: int = 3) -> HostPlan:
    fleet = make_fleet(2, n_hosts=1, n_disks=n_drives, begin_s=BEGIN_S)
    return fleet.hosts[0]


def test_reboot_restarts_counts_of_the_kernel_and_renames_devices() -> None:
    plan = replace(make_host(), reboots=((BEGIN_S + DAY_S, 600.0),))
    host = HostReplay(plan, BEGIN_S)
    assert host.advance(BEGIN_S + DAY_S - 1)
    before = [(drive.kernel_written, drive.host_bytes, drive.device) for drive in host.drives]
    assert not host.advance(BEGIN_S + DAY_S + 300)
    assert host.advance(BEGIN_S + DAY_S + 700)
    after = [(drive.kernel_written, drive.host_bytes, drive.device) for drive in host.drives]
    assert all(new[0] < old[0] and new[1] >= old[1] for old, new in zip(before, after, strict=True))
    assert [new[2] for new in after] == ["nvme1n1", "nvme2n1", "nvme0n1"]


def test_replaced_drive_is_new_and_has_another_serial() -> None:
    plan = replace(make_host(), swaps=((BEGIN_S + HOUR_S, 1),))
    host = HostReplay(plan, BEGIN_S)
    old = host.drives[1]
    host.advance(BEGIN_S + 2 * HOUR_S)
    new = host.drives[1]
    assert new.plan.serial != old.plan.serial and new.device == old.device
    assert new.page and new.page.used_percent == 0 and math.isfinite(new.find_endurance_bounds()[0])


class SampleLine(NamedTuple):
    """A line of OpenMetrics text: the series with its labels, the value, and the moment in seconds."""

    series: str
    value: str
    moment: str


def test_replay_has_the_series_and_values_of_an_answer() -> None:
    """Each sample of the virtual time is one that a scrape would return at that moment."""
    fleet = FleetPlan(2, BEGIN_S, (make_host(2),))
    text = io.StringIO()
    write_replay(fleet, 0.01, text)
    *lines, end = text.getvalue().splitlines()
    assert end == "# EOF"
    samples = [SampleLine(*line.rsplit(" ", 2)) for line in lines]
    moments = sorted({float(sample.moment) for sample in samples})
    replayed = {
        sample.series: float(sample.value) for sample in samples if float(sample.moment) == moments[-1]
    }
    host = HostReplay(fleet.hosts[0], BEGIN_S - 8 * DAY_S)
    for moment in moments:
        host.advance(moment)
    served = {}
    by_name = {family.name: family for family in table.FAMILIES}
    for name, rows in build_samples(host.drives).rows.items():
        for labels, value in rows:
            names = ("job", "instance", *by_name[name].labels)
            pairs = zip(names, ("opwatch", fleet.hosts[0].name, *labels), strict=True)
            key = ",".join(f'{label}="{text}"' for label, text in pairs)
            if isinstance(value, DurationCounts):
                served[f"{name}_count{{{key}}}"] = float(value.total)
                served[f"{name}_sum{{{key}}}"] = value.sum_s
            else:
                served[f"{name}{{{key}}}"] = float(value)
    assert len(replayed) > 40
    assert {series: served.get(series) for series in replayed} == replayed


@pytest.mark.parametrize(
    ("accept", "content"),
    [
        ("text/plain", "text/plain; version=0.0.4"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
        ("application/vnd.google.protobuf;proto=x;encoding=delimited", "application/vnd.google.protobuf"),
    ],
)
def test_format_follows_the_request(accept: str, content: str) -> None:
    assert choose_format(accept).value.startswith(content)


def test_server_answers_for_each_host_with_growing_counters() -> None:
    fleet = make_fleet(1, n_hosts=2, n_disks=2, begin_s=time.time())
    totals: Counter[str] = Counter()
    with serve_fleet(fleet) as server:
        for number in (0, 1, 0):
            url = f"http://127.0.0.1:{server.server_port}/{number}/metrics"
            with urllib.request.urlopen(url, timeout=30) as answer:
                families = {
                    family.name: family for family in text_string_to_metric_families(answer.read().decode())
                }
            serials = {sample.labels["serial"] for sample in families["opwatch_drive_info"].samples}
            assert serials == {drive.serial for drive in fleet.hosts[number].drives}
            bytes_read = sum(sample.value for sample in families["opwatch_io_bytes"].samples)
            assert bytes_read >= totals[str(number)]
            totals[str(number)] = int(bytes_read)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/2/metrics", timeout=30)


def count_series(samples: MetricSamples) -> tuple[int, int]:
    """Return the series of an answer with native histograms, and with classic buckets."""
    text = MetricEncoder().encode(samples, ExpositionFormat.TEXT).decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    # A native histogram is one series, and so is the _count of a classic one.
    parts_of_histograms = ("opwatch_io_duration_seconds_bucket", "opwatch_io_duration_seconds_sum")
    return sum(not line.startswith(parts_of_histograms) for line in lines), len(lines)


def test_series_per_disk_are_those_of_the_guide() -> None:
    plan = make_fleet(1, n_hosts=1, n_disks=8, begin_s=BEGIN_S)
    replay = HostReplay(plan.hosts[0], BEGIN_S, has_histograms=True)
    replay.advance(BEGIN_S + HOUR_S)
    samples = build_samples(replay.drives)
    native, classic = count_series(samples)
    add_owners(samples, replay.drives)
    with_owners, _ = count_series(samples)
    add_exporter(samples, BEGIN_S)
    per_host = count_series(samples)[0] - with_owners
    # The simulated drives have a pod and `other`.
    per_group = (with_owners - native) // 8 // 2
    page = " ".join((DOCS / "fleet.md").read_text().split())
    assert f"A disk has {native // 8} series with native histograms." in page
    assert (
        f"adds {per_group} for each control group: up to ten, and `other`. A host has {per_host} more" in page
    )
    assert f"are {classic // 8} series per disk instead of {native // 8}." in page
    least, most = native + per_host, native + 8 * 11 * per_group + per_host
    assert f"| 1 | {round(least, -1)} to {round(most, -1):,} |" in page
