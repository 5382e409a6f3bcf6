"""Observations in the text format of OpenMetrics 1.0 with timestamps, for Prometheus and compatible tools.

Counters are absolute and start at 0 at the first interval. The format keeps all points of a family together,
so nothing can be written before the end; until then the points are kept as arrays of numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from opwatch.cpu import CpuUse
from opwatch.samples.observation import Event, Observation
from opwatch.sinks.columns import COLUMNS, LATENCY, Family, read_figures
from opwatch.sinks.jsonl import build_op_document
from opwatch.sinks.terminal import Writer
from opwatch.trace import unavailable
from opwatch.trace.derive import QUANTILES, OpInterval, make_idle_op
from opwatch.trace.unavailable import TRUST
from opwatch.units import replace_unprintable

_NS = 1e-9
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


WAF = Family("opwatch_write_amplification_ratio", "gauge", "NAND bytes per host byte written.", "ratio")
WAF_ERROR = Family(
    "opwatch_write_amplification_error_ratio", "gauge", "Half the width of its error interval.", "ratio"
)
UNEXPLAINED = Family("opwatch_unexplained", "gauge", "Unexplained differences from the kernel's statistics.")
CPU = Family(
    "opwatch_cpu_seconds", "counter", "CPU time of the machine during the intervals of a device.", "seconds"
)
# Counters first, each kind in the order of the columns.
_OF_OPS = sorted(
    dict.fromkeys(column.family for column in COLUMNS if column.family), key=lambda one: one.kind != "counter"
)
FAMILIES = (*_OF_OPS, WAF, WAF_ERROR, UNEXPLAINED, CPU)
_IDLE = make_idle_op()


@dataclass(slots=True)
class _Points:
    """Values of one sample name with one set of labels, and the times. The label text is stored only once."""

    labels: str
    moments: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add_point(self, at: float, value: float) -> None:
        self.moments.append(at)
        self.values.append(value)


class OpenMetrics:
    """Writes the metrics at finish_output(); before that, no output exists."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = Writer(stream)
        self._families: dict[Family, dict[str, dict[str, _Points]]] = {family: {} for family in FAMILIES}
        self._totals: dict[tuple[str, str, str, str], float] = {}
        self._ops: dict[str, dict[str, None]] = {}
        self._cpu: dict[tuple[str, str], float] = {}
        self._newest: dict[str, float] = {}
        self._absent: dict[str, dict[str, str]] = {}

    def begin_output(self, notes: list[str]) -> None:
        """Do nothing: notes are messages, and the command prints them to stderr."""

    def write_event(self, event: Event) -> None:
        """Do nothing: an event is not a metric."""

    def write_observation(self, observation: Observation) -> None:
        if observation.final:
            return
        at = observation.at.timestamp()
        device = observation.device
        # Timestamps of a metric must increase.
        if at <= self._newest.get(device, float("-inf")):
            at = self._newest[device] + 1e-6
        self._newest[device] = at
        of_device = {"device": device}
        # A metric missing in the source has no series, because a 0 would claim a measurement of zero.
        self._absent[device] = observation.missing_fields
        # Counters of idle operations still exist.
        ops = observation.interval.ops
        seen = self._ops[device] = self._ops.get(device, {}) | dict.fromkeys(ops)
        for name in seen:
            self._put_op(at, {**of_device, "op": name}, ops.get(name) or _IDLE)
        if observation.live and observation.live.waf is not None:
            self._add_point(WAF, "", at, of_device, observation.live.waf)
            if observation.live.waf_error is not None:
                self._add_point(WAF_ERROR, "", at, of_device, observation.live.waf_error)
        if TRUST not in observation.missing_fields:
            self._add_point(UNEXPLAINED, "", at, of_device, len(observation.unexplained))

        if observation.cpu:
            self._put_cpu(at, device, observation.cpu)

    def _put_cpu(self, at: float, device: str, cpu: CpuUse) -> None:
        spent = {"user": cpu.user_s, "system": cpu.system_s, "steal": cpu.steal_s}
        if unavailable.IRQ not in self._absent[device]:
            spent["irq"] = cpu.irq_s
        for mode, seconds in spent.items():
            total = self._cpu[device, mode] = round(self._cpu.get((device, mode), 0.0) + seconds, 2)
            self._add_point(CPU, "_total", at, {"device": device, "mode": mode}, total)

    def finish_output(self) -> None:
        """Write all families, each with its samples together."""
        for family, samples in self._families.items():
            if samples:
                self._writer.write_line(f"# TYPE {family.name} {family.kind}")
                if family.unit:
                    self._writer.write_line(f"# UNIT {family.name} {family.unit}")
                self._writer.write_line(f"# HELP {family.name} {family.help}")
                for line in _format_family(family, samples):
                    self._writer.write_line(line)
        self._writer.write_line("# EOF")

    def _put_op(self, at: float, labels: Mapping[str, str], op: OpInterval) -> None:
        absent = self._absent[labels["device"]]
        figures = read_figures(build_op_document(op, 0.0, absent))
        # Without a histogram, the sum has no matching count.
        if unavailable.PERCENTILES not in absent:
            self._add_total(LATENCY, "_count", at, labels, op.latency.histogram.total)
            self._add_total(LATENCY, "_sum", at, labels, (op.latency.mean or 0) * op.count * _NS)
        for column in COLUMNS:
            path = column.total or column.paths[0]
            value, quantile = figures.get(path), QUANTILES.get(path.rpartition(".")[2])
            if column.family is None or value is None:
                continue
            if column.total:
                self._add_total(column.family, "_total", at, labels, value)
            elif column.family is not LATENCY:
                self._add_point(column.family, "", at, labels, value)
            elif quantile:
                self._add_point(LATENCY, "", at, {**labels, "quantile": str(quantile)}, value * _NS)

    def _add_total(
        self, family: Family, suffix: str, at: float, labels: Mapping[str, str], by: float
    ) -> None:
        key = (family.name, suffix, labels["device"], labels["op"])
        self._totals[key] = self._totals.get(key, 0) + by
        self._add_point(family, suffix, at, labels, self._totals[key])

    def _add_point(
        self, family: Family, suffix: str, at: float, labels: Mapping[str, str], value: float
    ) -> None:
        # A metric is identified by its labels; in a summary, by all labels except the quantile.
        metric = _format_labels({name: word for name, word in labels.items() if name != "quantile"})
        text = suffix + _format_labels(labels)
        points = self._families[family].setdefault(metric, {})
        if text not in points:
            points[text] = _Points(text)
        points[text].add_point(at, value)


def _format_labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(
        f'{name}="{replace_unprintable(value).translate(_ESCAPES)}"' for name, value in labels.items()
    )
    return f"{{{pairs}}}"


def _format_family(family: Family, metrics: Mapping[str, Mapping[str, _Points]]) -> Iterator[str]:
    """Yield the lines metric by metric in time order, with samples of the same time together."""
    for samples in metrics.values():
        places = dict.fromkeys(samples, 0)
        while True:
            left = [
                points.moments[places[text]] for text, points in samples.items() if _has_point(points, places)
            ]
            if not left:
                break
            now = min(left)
            for text, points in samples.items():
                if _has_point(points, places) and points.moments[places[text]] == now:
                    yield f"{family.name}{text} {_format_number(points.values[places[text]])} {now:.6f}"
                    places[text] += 1


def _has_point(points: _Points, places: Mapping[str, int]) -> bool:
    return places[points.labels] < len(points.moments)


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(value)
