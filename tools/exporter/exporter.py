"""The exporter: disks, drives and the server in one loop."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch import __version__
from opwatch.collectors.block.uevents import BlockEvents
from opwatch.errors import OpwatchError
from opwatch.host.device import Devices
from opwatch.metrics.exporter_state import ExporterState, add_exporter_metrics
from opwatch.metrics.family import MetricSamples
from opwatch.metrics.formats import ExpositionFormat, MetricEncoder
from opwatch.metrics.series_limit import DEFAULT_SERIES_LIMIT, SeriesLimit
from opwatch.tools.exporter.access import HostAccess
from opwatch.tools.exporter.disk_counters import RETRY_S, CountingOptions, DiskCounters
from opwatch.tools.exporter.drive_poller import DriveFinder
from opwatch.tools.exporter.drive_schedule import DriveSchedule
from opwatch.tools.exporter.event_loop import READ, EventLoop
from opwatch.tools.exporter.http_server import HttpServer
from opwatch.tools.exporter.site import ExporterSite

if TYPE_CHECKING:
    from ssl import SSLContext

    from opwatch.tools.exporter.otlp_push import OtlpPusher
    from opwatch.tools.exporter.trim_schedule import TrimSchedule

# A reading serves all scrapes within this time.
FRESH_S = 1.0
# Time between scans for disks, if the kernel sends no events.
_SCAN_S, _HINTED_SCAN_S = 10.0, 0.05
# Time from the start until the drives were polled for the first time, and between releases of memory.
_START_S, _RELEASE_S = 5.0, 3600.0
# Longest wait at the end for what is to be pushed.
_LAST_PUSH_S = 1.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ExporterOptions:
    """What an exporter serves. `names` are the devices, None for all disks; `drives_every_s` is 0 to leave
    the drives' own counters out."""

    names: Sequence[str] | None = None
    counting: CountingOptions = field(default_factory=CountingOptions)
    drives_every_s: float = 60.0
    deadline_s: float = 10.0
    series_limit: int = DEFAULT_SERIES_LIMIT
    web_config: Path | None = None
    trim: bool = False
    otlp: str = ""
    otlp_every_s: float = 60.0


class Exporter:
    """Serves metrics from construction to close()."""

    def __init__(
        self,
        options: ExporterOptions,
        access: HostAccess,
        listeners: Sequence[socket.socket],
        say: Callable[[str], None],
    ) -> None:
        """Attach to the disks, and start to listen. Raise OpwatchError if either fails."""
        self._options, self._access, self._say = options, access, say
        self._started_s = time.time()
        self.loop = EventLoop(say)
        # Subscribe before listing the disks, so that no later arrival is missed.
        self._events = BlockEvents()
        devices = Devices()
        self.disks = DiskCounters(access, devices, options.names, options.counting, self.loop.call_soon, say)
        self._finder = DriveFinder(devices, lambda: access.drives, options.drives_every_s)
        self.drives = DriveSchedule(self.loop.call_soon, options.deadline_s)
        self._encoder, self._limit = MetricEncoder(), SeriesLimit(options.series_limit)
        self._cached: MetricSamples | None = None
        self._read_s = float("-inf")
        self.site = ExporterSite(self.collect, self._find_unready, say)
        tls = self._load_web_config()
        self.disks.start()
        self._server = HttpServer(self.loop, listeners, self.site, tls)
        self._find_drives()
        self._drive_timer = self.loop.call_every(self.drives.run_due)
        self._scan_timer = self.loop.call_every(self._scan_disks)
        self.loop.call_every(self._retry_refused)
        self.loop.call_every(self._release_memory)
        self._trims = self._start_trim_checks() if options.trim else None
        self._pusher = self._start_pushing() if options.otlp else None
        if self._events.fileno() >= 0:
            self.loop.watch(self._events.fileno(), READ, lambda _: self._hear_events())

    @property
    def has_tls(self) -> bool:
        return self._server.tls is not None

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM. SIGHUP reads the web config again."""
        stop = self.loop.stop
        handlers = {signal.SIGINT: stop, signal.SIGTERM: stop, signal.SIGHUP: self._reload_web_config}
        self.loop.handle_signals(handlers)
        # Blocked by start_exporter().
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        self.loop.run()

    def collect(self, form: ExpositionFormat) -> bytes:
        """Return the metrics in a format, with counters read within the last second."""
        is_native = form is ExpositionFormat.PROTOBUF
        samples, with_classic = self._gather(is_native=is_native)
        return self._encoder.encode(samples, form, with_classic_buckets=with_classic)

    def _gather(self, *, is_native: bool) -> tuple[MetricSamples, bool]:
        """Return all samples, and whether classic buckets are within the limit of series."""
        now = time.monotonic()
        if self._cached is None or now - self._read_s >= FRESH_S:
            # Released first, so that two readings never take memory at the same time.
            self._cached = None
            self._cached, self._read_s = self._read_disks(), now
        samples = MetricSamples()
        samples.merge(self._cached)
        self.drives.add_metrics(samples)
        if self._trims:
            self._trims.add_metrics(samples)
        add_exporter_metrics(samples, self._describe_state(now))
        return samples, self._limit.apply(samples, has_native_buckets=is_native)

    def _read_disks(self) -> MetricSamples:
        if self.disks.scan_disks():
            self._find_drives()
            self._scan_timer.hasten(_HINTED_SCAN_S)
        samples = MetricSamples()
        self.disks.add_metrics(samples)
        return samples

    def _describe_state(self, now: float) -> ExporterState:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
        return ExporterState(
            version=__version__,
            started_at_s=self._started_s,
            cpu_s=time.process_time(),
            resident_bytes=resident,
            sample_age_s=now - self._read_s,
            is_broker_up=self._access.is_broker_up,
        )

    def _find_unready(self) -> str | None:
        return None if self.disks.is_ready else "no disk is watched; /metrics has the reasons"

    def _find_drives(self) -> None:
        if self._options.drives_every_s:
            self.drives.set_disks(self._finder.find_drives(self.disks.leaves))

    def _scan_disks(self) -> float:
        if self.disks.scan_disks():
            self._find_drives()
            self._drive_timer.hasten()
        return _HINTED_SCAN_S if self.disks.is_unsettled else _SCAN_S

    def _hear_events(self) -> None:
        if self._events.drain_events():
            self._scan_timer.hasten(_HINTED_SCAN_S)

    def _retry_refused(self) -> float:
        self.disks.retry_refused()
        return RETRY_S

    def _release_memory(self) -> float:
        """Release what only the start needed, once it is over."""
        if time.time() - self._started_s < _START_S:
            return _START_S
        with suppress(ImportError):
            from opwatch import _native

            _native.release_memory()
        return _RELEASE_S

    def _start_trim_checks(self) -> TrimSchedule:
        # Imported late, as all that only some exporters need.
        from opwatch.tools.exporter.trim_schedule import TrimSchedule

        trims = TrimSchedule(self.loop.call_soon, self._say)
        self.loop.call_every(trims.run_check)
        return trims

    def _start_pushing(self) -> OtlpPusher:
        # Imported late, as all that only some exporters need.
        from opwatch.tools.exporter.otlp_document import encode_document
        from opwatch.tools.exporter.otlp_push import OtlpPusher, parse_otlp_headers, parse_otlp_url

        headers = parse_otlp_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
        pusher = OtlpPusher(parse_otlp_url(self._options.otlp), headers, self._say)
        host = os.uname().nodename
        resource = {"service.name": "opwatch", "service.instance.id": host, "host.name": host}
        start_ns = round(self._started_s * 1e9)

        def push() -> float:
            samples, _ = self._gather(is_native=True)
            pusher.push(encode_document(samples, resource, __version__, start_ns, time.time_ns()))
            return self._options.otlp_every_s

        self.loop.call_every(push)
        return pusher

    def _load_web_config(self) -> SSLContext | None:
        """Use the web config, and return the TLS context, None without TLS."""
        if self._options.web_config is None:
            return None
        # Imported late, as all that only some exporters need.
        from opwatch.tools.exporter.web_config import read_web_config, require_kept_protection

        config = read_web_config(self._options.web_config)
        if self.site.config:
            require_kept_protection(self.site.config, config)
        context, logins = None, None
        if config.tls:
            from opwatch.tools.exporter.tls import make_tls_context

            context = make_tls_context(config.tls)
        if config.users:
            from opwatch.tools.exporter.passwords import LoginChecker

            logins = LoginChecker(config.users, self.loop.call_soon)
        self.site.apply_config(config, logins)
        return context

    def _reload_web_config(self) -> None:
        """Read the web config again. A file that is not valid changes nothing."""
        if self._options.web_config is None:
            self._say("SIGHUP: there is no --web.config.file to read again")
            return
        try:
            self._server.tls = self._load_web_config()
        except OpwatchError as error:
            self._say(f"the old web config stays in use: {error}")
        else:
            self._say(f"{self._options.web_config} was read again")

    def close(self) -> None:
        self.drives.stop()
        if self._pusher:
            self._pusher.close(_LAST_PUSH_S)
        self._server.close()
        self.disks.close()
        self._events.close()
        self.loop.close()
