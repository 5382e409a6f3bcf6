"""A running exporter, and what it serves."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[3]
_SAMPLE = re.compile(r"^([a-z_0-9]+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
# A series: its name, and its labels sorted by name.
Series = tuple[str, tuple[tuple[str, str], ...]]


def make_series(name: str, **labels: str) -> Series:
    return f"opwatch_{name}", tuple(sorted(labels.items()))


def parse_text(text: str) -> dict[Series, float]:
    """Return the samples of text 0.0.4."""
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match, line
            labels = tuple(sorted(_LABEL.findall(match[2] or "")))
            samples[match[1], labels] = float(match[3])
    return samples


@dataclass
class RunningExporter:
    """An exporter process with its messages."""

    process: subprocess.Popen[bytes]
    messages: Path
    port: int

    def fetch(self, path: str = "/metrics", accept: str = "") -> tuple[int, bytes, float]:
        """Return status, body and seconds of a request."""
        begin = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Accept": accept})
            answer = connection.getresponse()
            body = answer.read()
        return answer.status, body, time.monotonic() - begin

    def scrape(self) -> dict[Series, float]:
        """Return the samples of an answer that was not read before this call."""
        # One reading serves all scrapes within a second.
        time.sleep(1.05)
        status, body, _ = self.fetch()
        assert status == 200, body
        return parse_text(body.decode())

    def wait_for(
        self, holds: Callable[[dict[Series, float]], bool], seconds: float = 30
    ) -> dict[Series, float]:
        """Return the first samples for which a condition holds."""
        deadline = time.monotonic() + seconds
        while True:
            samples = self.scrape()
            if holds(samples):
                return samples
            assert time.monotonic() < deadline, self.read_messages()

    def read_messages(self) -> str:
        return self.messages.read_text()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(20)


@contextlib.contextmanager
def start_exporter(*arguments: str, prefix: tuple[str, ...] = ()) -> Iterator[RunningExporter]:
    """Yield an exporter on a free port, once it serves."""
    argv = [*prefix, sys.executable, "-P", "-m", "opwatch", "exporter", "--web.listen-address", "127.0.0.1:0"]
    with tempfile.NamedTemporaryFile() as file:
        process = subprocess.Popen([*argv, *arguments], stderr=file, cwd=TOP)
        try:
            messages = Path(file.name)
            deadline = time.monotonic() + 60
            while not (found := re.search(r"://127\.0\.0\.1:(\d+)/", messages.read_text())):
                assert process.poll() is None and time.monotonic() < deadline, messages.read_text()
                time.sleep(0.05)
            yield RunningExporter(process, messages, int(found[1]))
        finally:
            process.kill()
            process.wait()
