"""`python -m tests.bench.metrics_bench`: CPU time and size of an answer of the exporter.

Eight disks read, write, flush and discard between any two answers, so that no histogram is unchanged.
Samples are made from the tracer's bytes, as the exporter decodes them."""

from __future__ import annotations

import gzip
import random
import statistics
import struct
import sys
import time
from collections.abc import Callable, Sequence

from opwatch.metrics.drives import add_drive_metrics
from opwatch.metrics.exporter_state import ExporterState, add_exporter_metrics
from opwatch.metrics.family import MetricSamples
from opwatch.metrics.formats import ExpositionFormat, MetricEncoder
from opwatch.metrics.kernel import LossCounter, add_disk_metrics
from opwatch.metrics.series_limit import SeriesLimit
from opwatch.samples.sample import DiskSample, WatchedDisk
from opwatch.trace.abi import LATENCY, OPS, SCALARS, SLOTS, decode_sample
from opwatch.trace.stat import StatSample
from opwatch.trace.trust import GROUPS, Reading
from tests.unit.support.metric_answers import ANCHOR, make_reading

from .figure import Figure, choose_exit_status, choose_size, format_table
from .figures import describe_machine

DISKS = 8
ROUNDS, REQUESTS, WARM_UP = choose_size((60, 60, 3000), (3, 5, 50))
_BUSY = ("read", "write", "flush", "discard")
_WIDTH = len(SCALARS) + sum(SLOTS)
_COMPLETED, _BYTES, _ENDS, _SUM = (SCALARS.index(name) for name in ("completed", "bytes", "ends", "sum_ns"))
_REQUEST_BYTES = 4096
_KB, _MS = 1000, 1000
_GZIP_LEVEL = 6
# Together below 0.7 of the 8.6 ms of an answer of node_exporter.
_MOST_ENCODING_MS, _MOST_COLLECTING_MS = 3, 2.5


class _BusyDisk:
    """A disk whose counters grow."""

    def __init__(self, number: int) -> None:
        self.device, self._rng, self._total = f"nvme{number}n1", random.Random(number), 0
        self._words = [0] * (2 + len(OPS) * _WIDTH)

    def do_requests(self, count: int) -> None:
        for op in _BUSY:
            begin = 2 + OPS.index(op) * _WIDTH
            for _ in range(count):
                spread = 0.5 if self._rng.random() < 0.985 else 1.5
                duration = int(self._rng.lognormvariate(11.5, spread))
                self._words[begin + len(SCALARS) + LATENCY.find_slot(duration)] += 1
                for place, by in ((_COMPLETED, 1), (_ENDS, 1), (_BYTES, _REQUEST_BYTES), (_SUM, duration)):
                    self._words[begin + place] += by
        self._total += count

    def pack_sample(self) -> bytes:
        return struct.pack(f"={len(self._words)}Q", *self._words)

    def decode(self, raw: bytes) -> DiskSample:
        counts, sizes = (
            dict.fromkeys(GROUPS, self._total),
            dict.fromkeys(GROUPS, self._total * _REQUEST_BYTES),
        )
        witness = StatSample(0, 0, counts, sizes)
        disk = WatchedDisk(self.device, self.device, "requests")
        return DiskSample(disk, Reading(decode_sample(raw), witness, witness), 0, ANCHOR)


def _measure_ms(run: Callable[[], object]) -> float:
    begin = time.process_time()
    run()
    return (time.process_time() - begin) * _MS


def main() -> int:
    disks = [_BusyDisk(number) for number in range(DISKS)]
    losses = [LossCounter(disk.decode(disk.pack_sample())) for disk in disks]
    drives = [make_reading(disk.device, f"S64GNE0R70{place:04d}X") for place, disk in enumerate(disks)]
    state = ExporterState("0.1.0", 1.78e9, 12.5, 21 << 20, sample_age_s=0.25)
    encoder, limit = MetricEncoder(), SeriesLimit()
    collecting: list[float] = []
    encoding: dict[ExpositionFormat, list[float]] = {form: [] for form in ExpositionFormat}
    answers: dict[ExpositionFormat, bytes] = {}

    def collect(raws: Sequence[bytes], samples: MetricSamples) -> None:
        for disk, raw, counter, drive in zip(disks, raws, losses, drives, strict=True):
            sample = disk.decode(raw)
            add_disk_metrics(samples, sample, counter.update(sample))
            add_drive_metrics(samples, drive)
        add_exporter_metrics(samples, state)
        limit.apply(samples, has_native_buckets=True)

    def encode(form: ExpositionFormat, samples: MetricSamples) -> None:
        answers[form] = encoder.encode(samples, form)

    for disk in disks:
        disk.do_requests(WARM_UP)
    for _ in range(ROUNDS):
        for form in ExpositionFormat:
            for disk in disks:
                disk.do_requests(REQUESTS)
            raws, samples = [disk.pack_sample() for disk in disks], MetricSamples()
            collecting.append(_measure_ms(lambda: collect(raws, samples)))  # noqa: B023
            encoding[form].append(_measure_ms(lambda: encode(form, samples)))  # noqa: B023
    figures = [
        Figure(
            "decode and collect", statistics.median(collecting), _MOST_COLLECTING_MS, "ms of CPU, eight disks"
        )
    ]
    for form, times in encoding.items():
        name, raw = form.name.lower(), answers[form]
        text = f"ms of CPU, median of {ROUNDS}, at least {min(times):.2f}"
        figures.append(Figure(f"encode {name}", statistics.median(times), _MOST_ENCODING_MS, text))
        most = 12 if form is ExpositionFormat.PROTOBUF else 10
        text = f"KB, {len(raw) / _KB:.0f} KB before"
        figures.append(Figure(f"{name} by gzip", len(gzip.compress(raw, _GZIP_LEVEL)) / _KB, most, text))
    print(describe_machine())
    print("\n".join(format_table(figures)))
    return choose_exit_status(holds=all(figure.is_within_bound for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
