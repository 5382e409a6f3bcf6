"""The pages of the server: metrics, health, and a start page; who may see them, and how often."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from opwatch import __version__
from opwatch.metrics.formats import ExpositionFormat
from opwatch.tools.exporter.http_request import HttpRequest
from opwatch.tools.exporter.http_response import HttpResponse, make_error
from opwatch.tools.exporter.http_server import Answer
from opwatch.tools.exporter.negotiation import choose_exposition

if TYPE_CHECKING:
    from opwatch.tools.exporter.passwords import LoginChecker
    from opwatch.tools.exporter.web_config import RateLimit, WebConfig

_REALM = {"WWW-Authenticate": 'Basic realm="opwatch", charset="UTF-8"'}
# For a page without anything to load.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_START = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>opwatch exporter</title>
<style>body {{ font-family: sans-serif; margin: 2em }}</style></head>
<body><h1>opwatch exporter</h1>
<p>Version {version}. Metrics of this machine's disks: requests from the kernel, counters from the drives.</p>
<ul><li><a href="/metrics">Metrics</a></li><li><a href="/-/healthy">Healthy</a></li>
<li><a href="/-/ready">Ready</a></li></ul></body></html>
"""


class RequestBudget:
    """Allows a burst of requests, and one more after each interval."""

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = limit, clock
        self._left, self._since = float(limit.burst), clock()

    def take(self) -> bool:
        """Return True if one more request is allowed now."""
        now = self._clock()
        grown = self._left + (now - self._since) / self._limit.interval_s
        self._left, self._since = min(float(self._limit.burst), grown), now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class ExporterSite:
    """Answers requests. `collect` encodes the metrics; `find_unready` gives the reason why there are none
    yet."""

    def __init__(
        self,
        collect: Callable[[ExpositionFormat], bytes],
        find_unready: Callable[[], str | None],
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`report` is told of a page that cannot be made. Without it the error is raised."""
        self._collect, self._find_unready, self._report = collect, find_unready, report
        self.config: WebConfig | None = None
        self._logins: LoginChecker | None = None
        self._budget: RequestBudget | None = None

    def apply_config(self, config: WebConfig, logins: LoginChecker | None) -> None:
        """Use a web config from now on, with a checker if it has users."""
        if self._logins:
            self._logins.close()
        self.config, self._logins = config, logins
        self._budget = RequestBudget(config.rate_limit) if config.rate_limit else None

    @property
    def headers(self) -> Mapping[str, str]:
        return self.config.headers if self.config else {}

    def check_connection(self, connection: socket.socket) -> str | None:
        """Return the reason to refuse a client by its certificate, or None."""
        allowed = self.config.tls.allowed_sans if self.config and self.config.tls else ()
        if not allowed:
            return None
        from ssl import SSLSocket

        from opwatch.tools.exporter.tls import list_client_names

        names = list_client_names(connection) if isinstance(connection, SSLSocket) else []
        if any(name in allowed for name in names):
            return None
        return "none of the names in the client's certificate is in client_allowed_sans"

    def handle(self, request: HttpRequest, peer: str, answer: Answer) -> None:
        """Answer a request, after the check of a password if there are users."""
        if self._budget and not self._budget.take():
            answer(make_error(429, "more requests than rate_limit in the web config allows"))
            return
        if self._logins is None:
            answer(self._answer(request))
            return

        def end_check(is_right: bool) -> None:
            refused = make_error(401, "name and password are needed (basic_auth_users)", _REALM)
            answer(self._answer(request) if is_right else refused)

        if not self._logins.check(request.headers.get("authorization", ""), end_check):
            answer(make_error(503, "too many passwords are being checked; try again", {"Retry-After": "1"}))

    def _answer(self, request: HttpRequest) -> HttpResponse:
        pages: dict[str, Callable[[HttpRequest], HttpResponse]] = {
            "/": self._show_start,
            "/metrics": self._show_metrics,
            "/-/healthy": lambda _: HttpResponse(200, b"opwatch exporter is healthy\n"),
            "/-/ready": self._show_ready,
        }
        page = pages.get(request.path)
        if page is None:
            return make_error(404, "the pages are /, /metrics, /-/healthy and /-/ready")
        if request.method not in ("GET", "HEAD"):
            return make_error(405, "only GET and HEAD are answered", {"Allow": "GET, HEAD"})
        try:
            return page(request)
        except Exception as error:
            if self._report is None:
                raise
            self._report(f"{request.path} cannot be made: {type(error).__name__}: {error}")
            return make_error(500, "this page cannot be made because of a bug; the exporter's log has more")

    def _show_start(self, _request: HttpRequest) -> HttpResponse:
        page = _START.format(version=__version__).encode()
        policy = {"Content-Security-Policy": _POLICY}
        return HttpResponse(200, page, "text/html; charset=utf-8", policy | dict(self.headers))

    def _show_metrics(self, request: HttpRequest) -> HttpResponse:
        form = choose_exposition(request.headers.get("accept", ""))
        return HttpResponse(200, self._collect(form), form.value, may_compress=True)

    def _show_ready(self, _request: HttpRequest) -> HttpResponse:
        reason = self._find_unready()
        return make_error(503, reason) if reason else HttpResponse(200, b"opwatch exporter is ready\n")
