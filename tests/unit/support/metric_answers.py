"""Answers of busy disks, and a reader of the protobuf format."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opwatch.clock import Anchor
from opwatch.counters.reading import CounterReading, Proof
from opwatch.metrics.drive_reading import DriveHealth, DriveLabels, DriveReading
from opwatch.metrics.drives import add_drive_metrics
from opwatch.metrics.exporter_state import ExporterState, add_exporter_metrics
from opwatch.metrics.family import MetricSamples
from opwatch.metrics.kernel import add_disk_metrics
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.account.losses import LostRequests
from opwatch.trace.trust import Reading
from tests.unit.support.samples import Op, make_sample

ANCHOR = Anchor(0, 0, 0)
SECOND = 1_000_000_000
NO_LOSSES = LostRequests(0, 0)


def make_disk_sample(device: str = "nvme0n1", lacks: tuple[str, ...] = (), **ops: Op) -> DiskSample:
    """Return an absolute sample of a disk without statistics of the kernel."""
    disk = WatchedDisk(device, device, "requests", lacks=lacks)
    return DiskSample(disk, Reading(make_sample(SECOND, **ops), None, None), 0, ANCHOR)


def draw_durations(seed: int, count: int) -> list[int]:
    """Return durations in ns around 0.1 ms, of which 1.5 % are in a long tail."""
    rng = random.Random(seed)
    return [int(rng.lognormvariate(11.5, 0.5 if rng.random() < 0.985 else 1.5)) for _ in range(count)]


def make_counter(value: int | None, quantum: int = 1, reason: str | None = None) -> CounterReading:
    proof = Proof.SPEC if value is not None else Proof.CANDIDATE
    return CounterReading(value, "bytes", quantum, "log 02h", proof, reason)


def make_reading(device: str = "nvme0n1", serial: str = "S64GNE0R700001X", **labels: Any) -> DriveReading:  # noqa: ANN401
    """Return a reading of an NVMe drive that reports everything."""
    known: dict[str, Any] = {
        "model": "SAMSUNG MZQL23T8HCLS-00A07",
        "firmware": "GDC5602Q",
        "wwid": "eui.36434730526054880025384700000001",
        "transport": "nvme",
        "is_rotational": False,
        "capacity_bytes": 3840755982336,
    }
    counters = {
        "host": make_counter(10**14, 512_000),
        "host_read": make_counter(2 * 10**14, 512_000),
        "media": make_counter(3 * 10**14),
    }
    health = DriveHealth(
        spare_percent=100,
        spare_threshold_percent=10,
        used_percent=3,
        temperature_celsius=38,
        media_errors=0,
        power_on_hours=12345,
        power_cycles=17,
        critical_warning=0b101,
        hours_left=(1e5, 2e5),
    )
    return DriveReading(
        labels=DriveLabels(device, serial, **(known | labels)),
        counters=counters,
        health=health,
        read_at_s=1.78e9,
        kernel_written_bytes=123456789012,
        kernel_read_bytes=223456789012,
    )


def make_answer(disks: int, requests: int = 2000) -> MetricSamples:
    """Return the samples of an exporter with busy disks: reads and writes, a flush for some writes."""
    samples = MetricSamples()
    for number in range(disks):
        reads, writes = draw_durations(number, requests), draw_durations(100 + number, requests)
        ops = {
            "read": Op(reads, [4096] * requests, queue_ns=reads[:9]),
            "write": Op(writes, [16384] * requests, statuses={10: 1}),
            "flush": Op(draw_durations(200 + number, requests // 50)),
        }
        add_disk_metrics(samples, make_disk_sample(f"nvme{number}n1", (), **ops), NO_LOSSES)
        add_drive_metrics(samples, make_reading(f"nvme{number}n1", f"S64GNE0R70{number:04d}X"))
    state = ExporterState("0.1.0", 1.78e9, 12.5, 21 << 20, sample_age_s=0.25, is_broker_up=True)
    add_exporter_metrics(samples, state)
    return samples


# Messages and fields as in metrics.proto of prometheus/client_model.
_PROTO: dict[str, dict[int, tuple[str, str]]] = {
    "MetricFamily": {
        1: ("name", "string"),
        2: ("help", "string"),
        3: ("type", "varint"),
        4: ("metric", "Metric"),
        5: ("unit", "string"),
    },
    "Metric": {
        1: ("label", "LabelPair"),
        2: ("gauge", "Value"),
        3: ("counter", "Value"),
        7: ("histogram", "Histogram"),
    },
    "LabelPair": {1: ("name", "string"), 2: ("value", "string")},
    "Value": {1: ("value", "double")},
    "Histogram": {
        1: ("sample_count", "varint"),
        2: ("sample_sum", "double"),
        3: ("bucket", "Bucket"),
        5: ("schema", "sint"),
        6: ("zero_threshold", "double"),
        7: ("zero_count", "varint"),
        12: ("positive_span", "BucketSpan"),
        13: ("positive_delta", "packed sint"),
    },
    "Bucket": {1: ("cumulative_count", "varint"), 2: ("upper_bound", "double")},
    "BucketSpan": {1: ("offset", "sint"), 2: ("length", "varint")},
}


@dataclass
class Message:
    """A decoded message: lists of values by field."""

    fields: dict[str, list[Any]] = field(default_factory=dict)

    def get(self, name: str) -> Any:  # noqa: ANN401
        """Return a field's only value, or 0 if it is missing."""
        values = self.fields.get(name, [0])
        assert len(values) == 1
        return values[0]

    def list(self, name: str) -> list[Any]:
        return self.fields.get(name, [])

    @property
    def labels(self) -> dict[str, str]:
        return {pair.get("name"): pair.get("value") for pair in self.list("label")}

    def list_native(self) -> dict[int, int]:
        """Return the native buckets in use of a histogram, by index."""
        buckets: dict[int, int] = {}
        deltas = iter(self.list("positive_delta"))
        index = count = 0
        for span in self.list("positive_span"):
            index += span.get("offset")
            for _ in range(span.get("length")):
                count += next(deltas)
                buckets[index] = count
                index += 1
        assert next(deltas, None) is None
        return {index: count for index, count in buckets.items() if count}


def _read_varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _to_signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)


def _read_packed(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        value, at = _read_varint(raw, at)
        yield _to_signed(value)


def read_message(raw: bytes, kind: str) -> Message:
    """Return a message. Unknown fields and wrong wire types are errors."""
    message, at = Message(), 0
    while at < len(raw):
        tag, at = _read_varint(raw, at)
        name, form = _PROTO[kind][tag >> 3]
        values = message.fields.setdefault(name, [])
        if form in ("varint", "sint"):
            assert tag & 7 == 0
            value, at = _read_varint(raw, at)
            values.append(_to_signed(value) if form == "sint" else value)
        elif form == "double":
            assert tag & 7 == 1
            values.append(struct.unpack_from("<d", raw, at)[0])
            at += 8
        else:
            assert tag & 7 == 2
            size, at = _read_varint(raw, at)
            part, at = raw[at : at + size], at + size
            assert len(part) == size
            if form == "packed sint":
                values += _read_packed(part)
            else:
                values.append(part.decode() if form == "string" else read_message(part, form))
    return message


def read_families(raw: bytes) -> dict[str, Message]:
    """Return the families of a delimited answer by name, each once."""
    families: dict[str, Message] = {}
    at = 0
    while at < len(raw):
        size, at = _read_varint(raw, at)
        family, at = read_message(raw[at : at + size], "MetricFamily"), at + size
        assert family.get("name") not in families
        families[family.get("name")] = family
    assert at == len(raw)
    return families
