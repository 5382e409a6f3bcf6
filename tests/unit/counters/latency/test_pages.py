"""Log pages D0h and C3h: fields by the specifications, and no values from other data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.collectors.firmware.recorded import read_recorded
from opwatch.counters.decode.amazon import decode_amazon
from opwatch.counters.decode.identify import Controller
from opwatch.counters.decode.monitor import decode_monitor
from opwatch.counters.decode.ocp import CLOUD_GUID
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.latency.drive_latency import decode_latency, select_pages
from opwatch.counters.latency.quantiles import TimeRange, bound_mean, bound_quantile
from opwatch.errors import BadInput
from opwatch.sinks.latency.drive_log import build_latency_document, format_drive_latency
from opwatch.tools.cli import main
from tests.unit.counters.latency import pages
from tests.unit.counters.latency.pages import (
    FOLDER,
    NO_EDGE,
    append_size_histograms,
    encode_amazon_page,
    encode_monitor_page,
)
from tests.unit.sinks.test_schema import forbid_extra_fields

SCHEMA = forbid_extra_fields(
    json.loads((Path(__file__).parents[4] / "docs" / "schema" / "latency.json").read_text())
)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("ebs-log-d0.bin", pages.encode_ebs_page),
        ("instance-storage-log-d0.bin", pages.encode_storage_page),
        ("ocp-log-c3.bin", pages.encode_slow_page),
    ],
)
def test_fixtures_match_the_pages_built_from_the_specification(name: str, made: Callable[[], bytes]) -> None:
    assert (FOLDER / name).read_bytes() == made()


def test_page_of_an_ebs_volume_is_decoded() -> None:
    log = decode_amazon((FOLDER / "ebs-log-d0.bin").read_bytes())
    assert not log.is_instance_storage
    assert (log.read.commands, log.read.bytes, log.read.time_us) == (100, 409_600, 11_000)
    assert (log.write.commands, log.write.bytes, log.write.time_us) == (5, 81_920, 1_000)
    assert (log.volume_iops_us, log.volume_bandwidth_us) == (1_500_000, 0)
    assert (log.instance_iops_us, log.instance_bandwidth_us, log.queue_length) == (0, 20, 3)
    assert [slot.count for slot in log.read.slots] == [10, 80, 9, 1]
    assert log.read.slots[-1].high_us is None
    assert log.by_size == ()


def test_instance_storage_has_histograms_by_size() -> None:
    log = decode_amazon((FOLDER / "instance-storage-log-d0.bin").read_bytes())
    small, large = log.by_size
    assert (small.above_bytes, small.most_bytes) == (0, 4096)
    assert (large.above_bytes, large.most_bytes) == (4096, None)
    assert [slot.count for slot in small.read] == [10, 80, 9, 0]
    assert [slot.count for slot in large.write] == [0, 0, 5, 0]
    assert [slot.low_us for slot in large.write] == [0, 64, 128, 256]


def test_quantiles_are_as_wide_as_the_slots_allow() -> None:
    log = decode_amazon(pages.encode_ebs_page())
    # One microsecond to either side, because the rounding is unspecified.
    assert bound_quantile(log.read.slots, 0.5) == TimeRange(63_000, 129_000)
    assert bound_quantile(log.read.slots, 0.1) == TimeRange(0, 65_000)
    assert bound_quantile(log.read.slots, 0.999) == TimeRange(255_000, None)
    assert bound_mean(log.read) == TimeRange(109_000, 111_000)
    empty = decode_amazon(encode_amazon_page())
    assert bound_quantile(empty.read.slots, 0.5) is None
    assert bound_mean(empty.read) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        bytes(4096),
        encode_amazon_page(0x12345678),
        encode_amazon_page()[:4095],
        encode_amazon_page(read_slots=((0, 64, 1), (63, 128, 1))),
        encode_amazon_page(read_slots=((0, NO_EDGE, 1), (64, 128, 1))),
        encode_amazon_page(write_slots=((64, 63, 1),)),
        encode_amazon_page()[:512] + (65).to_bytes(8, "little") + encode_amazon_page()[520:],
        append_size_histograms(encode_amazon_page(pages.INSTANCE_STORAGE, version=1), (4096, 4096), ()),
        append_size_histograms(encode_amazon_page(pages.INSTANCE_STORAGE, version=1), range(1, 10), ()),
        append_size_histograms(
            encode_amazon_page(
                pages.INSTANCE_STORAGE, version=1, write_slots=[(edge, edge + 1, 0) for edge in range(33)]
            ),
            (4096,),
            (),
        ),
    ],
)
def test_invalid_amazon_pages_are_refused(raw: bytes) -> None:
    with pytest.raises(BadPage):
        decode_amazon(raw)


def test_latency_monitor_is_decoded() -> None:
    log = decode_monitor((FOLDER / "ocp-log-c3.bin").read_bytes())
    assert log.enabled
    assert (log.minutes, log.minutes_in_all, log.window_ms, log.version) == (40, 10_080, 1_000, 5)
    assert [bucket.from_ms for bucket in log.active] == [30, 100, 155, 235]
    read = log.active[0].cells["read"]
    assert (read.commands, read.measured_ms, read.stamp_ms, read.is_by_clock) == (7, 42, 1_000, False)
    write = log.active[3].cells["write"]
    # The bits above a stamp's milliseconds name the clock source.
    assert (write.commands, write.measured_ms, write.stamp_ms, write.is_by_clock) == (2, 312, 5_000, True)
    trim = log.static[1].cells["trim"]
    assert (trim.commands, trim.measured_ms, trim.stamp_ms) == (1, 120, 9_000)
    counts = [cell.commands for bucket in log.active for cell in bucket.cells.values()]
    assert sum(counts) == 9
    assert log.debug_log_ms is None


@given(
    st.integers(0, 3), st.integers(0, 2), st.integers(0, 2**32 - 1), st.integers(1, 2**16 - 1), st.booleans()
)
def test_each_cell_is_decoded_at_its_offset(
    bucket: int, direction: int, count: int, ms: int, static: bool
) -> None:
    cells = {(bucket, direction): (count, ms, 77)}
    log = decode_monitor(encode_monitor_page({}, cells) if static else encode_monitor_page(cells))
    measured = [
        (place, name, cell)
        for place, group in enumerate(log.static if static else log.active)
        for name, cell in group.cells.items()
        if cell.measured_ms
    ]
    [(place, name, cell)] = measured
    assert (place, name) == (bucket, ("read", "write", "trim")[direction])
    assert (cell.commands, cell.measured_ms, cell.stamp_ms) == (count, ms, 77)
    assert cell.saturated == (count == 2**32 - 1)


@pytest.mark.parametrize(
    "raw",
    [
        bytes(512),
        encode_monitor_page({})[:511],
        encode_monitor_page({})[:496] + CLOUD_GUID,
        encode_monitor_page({}, thresholds=(5, 5, 6, 7)),
        encode_monitor_page({}, thresholds=(9, 8, 7, 6)),
    ],
)
def test_invalid_latency_monitors_are_refused(raw: bytes) -> None:
    with pytest.raises(BadPage):
        decode_monitor(raw)


def test_disabled_monitor_may_have_any_thresholds() -> None:
    log = decode_monitor(encode_monitor_page({}, status=6, thresholds=(0, 0, 0, 0)))
    assert not log.enabled


def test_other_vendors_pages_are_not_requested() -> None:
    cloud = bytes(496) + CLOUD_GUID
    assert select_pages(Controller(vendor_id=0x1344), cloud).amazon_bytes is None
    assert select_pages(Controller(vendor_id=0x1344), cloud).has_monitor
    assert not select_pages(Controller(vendor_id=0x1344), bytes(512)).has_monitor
    ebs = Controller(vendor_id=0x1D0F, model="Amazon Elastic Block Store")
    assert select_pages(ebs, None).amazon_bytes == 4096
    local = Controller(vendor_id=0x1D0F, model="Amazon EC2 NVMe Instance Storage")
    assert select_pages(local, None).amazon_bytes == 8192


def format_latency(*names: str) -> list[str]:
    return format_drive_latency(decode_latency(read_recorded([FOLDER / name for name in names])))


def test_report_lines_fit_in_80_columns() -> None:
    text = format_latency("instance-storage-log-d0.bin", "ocp-log-c3.bin") + format_latency("ebs-log-d0.bin")
    assert all(len(line) <= 80 for line in text)
    whole = " ".join(" ".join(text).split())
    assert "read 100 410 kB 109u..111u 63.0u..129u 127u..257u" in whole
    assert "limits exceeded: the volume's IOPS for 1.50s, the instance's throughput for 20.0u" in whole
    assert "30 to 100 ms 7 (max 42 ms) 0 0" in whole
    assert "235 ms or more 0 2 (max 312 ms) 0" in whole
    assert "the 10080 min before: 30 to 100 ms 0 0 0 100 to 155 ms 0 0 1 (max 120 ms)" in whole


@pytest.mark.parametrize(
    "names", [("ebs-log-d0.bin",), ("instance-storage-log-d0.bin",), ("ocp-log-c3.bin",)], ids=str
)
def test_document_matches_its_description(names: tuple[str, ...]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    made = build_latency_document(decode_latency(read_recorded([FOLDER / name for name in names])))
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(made)))


def test_files_without_latency_pages_are_refused() -> None:
    with pytest.raises(BadInput, match="no latency log of a drive"):
        decode_latency(read_recorded([FOLDER.parent / "counters" / "autoval" / "nvme_smartlog.json"]))


def test_command_reads_recorded_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["counters", "--latency", "--from", str(FOLDER / "ebs-log-d0.bin"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["own"]["read"]["commands"] == 100
    assert main(["counters", "--latency", "--from", str(FOLDER / "nothing")]) == 2
    assert main(["counters", "--latency", "--tbw", "600", "--from", str(FOLDER / "ebs-log-d0.bin")]) == 2
