"""A server of metrics that runs in another process: its answers, its CPU time and its memory."""

from __future__ import annotations

import gzip
import http.client
import re
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.metrics.formats import ExpositionFormat

TIMEOUT_S = 60
_KIB = 1024
_SERIES = re.compile(r"^([a-z_0-9]+)\{(.*)\} \S+$", re.MULTILINE)
_HISTOGRAM = re.compile(r"^# TYPE (\S+) histogram$", re.MULTILINE)
_BOUND = re.compile(r',?le="[^"]*"')
_DEVICE = re.compile(r'(?:^|,)device="([^"]*)"')
# Prefers one format, as Prometheus does, and accepts text as a last resort.
_ACCEPT = {
    ExpositionFormat.TEXT: "text/plain;version=0.0.4",
    ExpositionFormat.OPENMETRICS: "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
    ExpositionFormat.PROTOBUF: "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
    "encoding=delimited,text/plain;version=0.0.4;q=0.5",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one or more processes."""

    rss: int
    pss: int


def read_memory(*pids: int) -> Memory:
    """Return the sums for these processes. Pages that they share count once per process in `rss`."""
    sums: Counter[str] = Counter()
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value, _unit = line.split()
            sums[name] += int(value) * _KIB
    return Memory(sums["Rss:"], sums["Pss:"])


def read_cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process, also of those that ended, in ns resolution."""
    # The clock of a process, as clock_getcpuclockid(3) returns it. /proc/PID/stat counts in 10 ms.
    return time.clock_gettime_ns(~pid << 3 | 2) / 1e9


@dataclass(frozen=True, slots=True)
class Answer:
    """The body of an answer as it was sent, and the body without compression."""

    sent: bytes
    body: bytes


class MeteredServer:
    """A connection to a server, kept open as a scraper keeps it."""

    def __init__(self, pid: int, port: int, *, has_tls: bool = False) -> None:
        self.pid = pid
        if has_tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=TIMEOUT_S, context=context
            )
        else:
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def scrape(self, form: ExpositionFormat, *, with_gzip: bool = True) -> Answer:
        headers = {"Accept": _ACCEPT[form], "Accept-Encoding": "gzip" if with_gzip else "identity"}
        self._connection.request("GET", "/metrics", headers=headers)
        answer = self._connection.getresponse()
        sent = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {sent[:200]!r}")
        is_compressed = answer.headers.get("Content-Encoding") == "gzip"
        return Answer(sent, gzip.decompress(sent) if is_compressed else sent)

    def read_cpu_s(self) -> float:
        return read_cpu_s(self.pid)

    def read_memory(self) -> Memory:
        return read_memory(self.pid)

    def close(self) -> None:
        self._connection.close()


def count_series(text: str, devices: Sequence[str]) -> tuple[int, int]:
    """Return the most series of a device in text 0.0.4, with native and with classic histograms.

    A native histogram is one series, a classic one has a series per bound, and two more.
    """
    histograms = set(_HISTOGRAM.findall(text))
    classic: Counter[str] = Counter()
    native: dict[str, set[tuple[str, str]]] = {device: set() for device in devices}
    for name, labels in _SERIES.findall(text):
        device = _DEVICE.search(labels)
        if device is None or device[1] not in native:
            continue
        classic[device[1]] += 1
        base = re.sub("_(bucket|sum|count)$", "", name)
        series = (base, _BOUND.sub("", labels)) if base in histograms else (name, labels)
        native[device[1]].add(series)
    return max(map(len, native.values())), max(classic.values(), default=0)
