"""Write docs/metrics.md from the table of metrics: `python -m tests.metrics_page`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from opwatch.metrics.buckets import CLASSIC_BOUNDS, NATIVE_SCHEMA
from opwatch.metrics.family import MetricFamily
from opwatch.metrics.owner_ranking import MAX_OWNERS
from opwatch.metrics.series_limit import DEFAULT_SERIES_LIMIT
from opwatch.metrics.table import DROP_ORDER, FAMILIES, LABELS
from tests.tracked import ROOT

PAGE = ROOT / "docs" / "metrics.md"
_WIDTH = 120
_INTRODUCTION = f"""
`opwatch exporter` serves these metrics, and `opwatch dump -O openmetrics` writes those that a recording
has. The formats are Prometheus text 0.0.4, OpenMetrics 1.0 and Prometheus protobuf. [fleet.md](fleet.md) is
the guide for many hosts.

Counters are absolute, and no value is a ratio of two counters: divide rates in the query. A value that is
unknown has no series, and never a 0. All times are in seconds, all sizes in bytes.

Durations have {len(CLASSIC_BOUNDS)} classic buckets, two per octave from {CLASSIC_BOUNDS[0] * 1e6:.1f} µs
to {CLASSIC_BOUNDS[-1]:.1f} s. Each bound is the largest value of a slot of the tracer's histogram, so the
bucket's count is exact. In protobuf the same message has a native histogram of schema {NATIVE_SCHEMA},
and the server stores the one it is configured for. A native bucket is 9 % wide; a value is at most 1.6 %
on the wrong side of its bound. Sums are exact. Without a known distribution, there is only the bucket
`+Inf`.
"""
_OPERATIONS = """
The series of read, write, flush and discard exist from the start; other operations get theirs with the
first request.
"""
_COST = """
An answer with eight busy disks takes 2.5 ms of CPU as text and 4 ms as protobuf, without compression, on
one of 2 CPUs of a busy machine. gzip makes 150 KB of text 10 KB at level 6, and 47 KB of protobuf 8.6 KB
(`make bench-metrics`).
"""
_OWNERS = f"""
With `--by cgroup`, each disk has series for its {MAX_OWNERS} busiest control groups, and `cgroup="other"`
for the rest. The rank follows the bytes and requests of the last minutes. A control group keeps its place
for five minutes at least, and is replaced only by one that does twice as much. One that enters starts at
0: what it did before stays in `other`. One that leaves ends its series; its bytes go to
`opwatch_owner_departed_bytes`, because `other` would show them as a burst. So the increases of all series
add up to the increase of the device's counter, and no counter decreases.
"""
_LIMIT = f"""
An answer has at most `--series-limit` series ({DEFAULT_SERIES_LIMIT}); a classic histogram counts with
all its buckets. Beyond it, protobuf first loses the classic buckets. Then whole families are left out in
the order below, until the rest fits. A family comes back if the ones dropped after it made enough room.
`opwatch_exporter_series_dropped_total` counts every series that is left out. Families that are not in the
list are always served, because they say whether the others can be trusted.
"""


def _list_rows(families: Iterable[MetricFamily]) -> Iterator[str]:
    yield "| name | type | labels | meaning |"
    yield "|---|---|---|---|"
    for family in families:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        note = f" {family.note}" if family.note else ""
        absent = f" Absent if: {family.absent}." if family.absent else ""
        yield f"| `{family.name}` | {family.kind} | {labels} | {family.help}{note}{absent} |"


def _wrap(text: str) -> str:
    return "\n\n".join(
        textwrap.fill(part, _WIDTH, break_long_words=False, break_on_hyphens=False)
        for part in text.strip().split("\n\n")
    )


def make_page() -> str:
    """Return the page."""
    sources = dict.fromkeys(family.source for family in FAMILIES)
    parts = ["# Metrics", "<!-- Written by `python -m tests.metrics_page` from opwatch/metrics/table.py. -->"]
    parts.append(_wrap(_INTRODUCTION))
    for source in sources:
        parts.append(f"## Metrics of `{source}`" if source else "## Default metrics")
        extra = {"": _OPERATIONS, "--by cgroup": _OWNERS}.get(source)
        parts += [_wrap(extra)] if extra else []
        parts.append("\n".join(_list_rows(family for family in FAMILIES if family.source == source)))
    rows = [f"| `{name}` | {meaning} |" for name, meaning in LABELS.items()]
    parts += ["## Cost", _wrap(_COST), "## Labels", "\n".join(["| label | values |", "|---|---|", *rows])]
    parts += ["## Series limit", _wrap(_LIMIT)]
    parts.append("\n".join(f"{place}. `{family.name}`" for place, family in enumerate(DROP_ORDER, 1)))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(make_page())
