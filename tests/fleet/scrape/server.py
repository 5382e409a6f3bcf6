"""One process that answers scrapes for a whole fleet: host N at /N/metrics, in the exporter's formats.

    python -m tests.fleet.scrape.server --hosts 20 --disks 8 --port 9999

Drives live in real time: at each scrape, the host's drives are advanced to the present.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opwatch.metrics.formats import ExpositionFormat, MetricEncoder

from .answers import add_exporter, add_owners, build_samples
from .drives import PAGE_EVERY_S
from .plan import FleetPlan, make_fleet
from .replay import HostReplay

# History of each drive before the first scrape, so that counters do not start at 0.
PAST_S = 1800.0


def choose_format(accept: str) -> ExpositionFormat:
    """Return the format for an Accept header, by the first name that is known."""
    for part in accept.split(","):
        if "application/vnd.google.protobuf" in part:
            return ExpositionFormat.PROTOBUF
        if "application/openmetrics-text" in part:
            return ExpositionFormat.OPENMETRICS
    return ExpositionFormat.TEXT


class LiveHost:
    """A host in real time. Answers are built one after the other, whatever the number of clients."""

    def __init__(self, replay: HostReplay, *, with_classic_buckets: bool, page_every_s: float) -> None:
        self.replay = replay
        replay.advance(time.time())
        for drive in replay.drives:
            drive.set_page_interval(page_every_s)
        self._frozen_s: float | None = None
        self._begin_s = time.time()
        self._with_classic_buckets = with_classic_buckets
        self._encoder = MetricEncoder()
        self._lock = threading.Lock()

    def build_answer(self, form: ExpositionFormat) -> bytes:
        """Advance the drives to the present and return the encoded answer."""
        with self._lock:
            self.replay.advance(self._find_now())
            samples = build_samples(self.replay.drives)
            add_owners(samples, self.replay.drives)
            add_exporter(samples, self._begin_s)
            return self._encoder.encode(samples, form, with_classic_buckets=self._with_classic_buckets)

    def freeze(self, moment_s: float) -> None:
        """Advance the drives to a moment, and let them stand still."""
        with self._lock:
            self._frozen_s = moment_s
            self.replay.advance(moment_s)

    def _find_now(self) -> float:
        return time.time() if self._frozen_s is None else self._frozen_s

    def count_exact_reads(self) -> Counter[int]:
        """Return the true latencies of all reads so far, in the slots of `drives.EXACT`."""
        with self._lock:
            return sum((drive.exact_reads for drive in self.replay.drives), Counter())


class FleetHandler(BaseHTTPRequestHandler):
    """Answers GET /N/metrics."""

    protocol_version = "HTTP/1.1"
    server: FleetServer

    def do_GET(self) -> None:
        number, _, rest = self.path.strip("/").partition("/")
        if rest != "metrics" or not number.isdecimal() or int(number) >= len(self.server.hosts):
            self.send_error(404)
            return
        form = choose_format(self.headers.get("Accept", ""))
        body = self.server.hosts[int(number)].build_answer(form)
        self.send_response(200)
        self.send_header("Content-Type", form.value)
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: thousands of scrapes are not news."""


class FleetServer(ThreadingHTTPServer):
    """Serves a fleet on a port of the loopback interface."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(
        self,
        plan: FleetPlan,
        port: int = 0,
        *,
        with_classic_buckets: bool = True,
        page_every_s: float = PAGE_EVERY_S,
        past_s: float = PAST_S,
    ) -> None:
        super().__init__(("127.0.0.1", port), FleetHandler)
        self.plan = plan
        now_s = time.time()
        self.hosts = [
            LiveHost(
                HostReplay(host, now_s - past_s, has_histograms=True),
                with_classic_buckets=with_classic_buckets,
                page_every_s=page_every_s,
            )
            for host in plan.hosts
        ]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up, as a server does whose timeout is over; report all other errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def freeze(self) -> None:
        """Let all drives stand still from now on, so that counts can be compared."""
        now_s = time.time()
        for host in self.hosts:
            host.freeze(now_s)

    def make_scrape_config(self, interval_s: int, *, extra: str = "") -> str:
        """Return a configuration of Prometheus that scrapes each host under its own name."""
        targets = "".join(
            f"      - targets: ['127.0.0.1:{self.server_port}']\n"
            f"        labels: {{__metrics_path__: /{number}/metrics, instance: {host.name}}}\n"
            for number, host in enumerate(self.plan.hosts)
        )
        return (
            "scrape_configs:\n  - job_name: opwatch\n"
            f"    scrape_interval: {interval_s}s\n    scrape_timeout: {interval_s}s\n{extra}"
            f"    static_configs:\n{targets}"
        )


@contextmanager
def serve_fleet(
    plan: FleetPlan,
    *,
    with_classic_buckets: bool = True,
    page_every_s: float = PAGE_EVERY_S,
    past_s: float = PAST_S,
) -> Iterator[FleetServer]:
    """Serve a fleet on a free port until the block ends."""
    server = FleetServer(
        plan, with_classic_buckets=with_classic_buckets, page_every_s=page_every_s, past_s=past_s
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Answer scrapes for a simulated fleet.")
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--disks", type=int, default=8)
    parser.add_argument("--port", type=int, default=9999)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faulty", type=int, default=0, help="disks with each kind of fault")
    args = parser.parse_args()
    plan = make_fleet(
        args.seed, n_hosts=args.hosts, n_disks=args.disks, begin_s=time.time() - PAST_S, faulty=args.faulty
    )
    server = FleetServer(plan, args.port)
    for drive in plan.list_drives():
        for fault in drive.faults:
            print(f"{drive.host} {drive.device} {drive.serial}: {fault.kind}, factor {fault.factor:.2f}")
    print(server.make_scrape_config(15))
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
