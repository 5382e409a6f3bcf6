"""`opwatch exporter [--web.listen-address A]...`: serve metrics of all disks to Prometheus."""

from __future__ import annotations

import argparse
from pathlib import Path

from opwatch.collectors.broker.protocol import SOCKET
from opwatch.errors import UsageError
from opwatch.sinks.terminal import print_message
from opwatch.tools.arguments import count_between, time_between
from opwatch.tools.exporter.launch import NO_BROKER, LaunchOptions, start_exporter
from opwatch.tools.exporter.listening import DEFAULT_PORT, parse_address

_DRIVES_S, _DEADLINE_S, _PUSH_S = 60.0, 10.0, 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "opwatch exporter [--web.listen-address A]... [--dev D]... [options]"
    _add_web_arguments(parser)
    _add_push_arguments(parser)
    what = parser.add_argument_group("what to export")
    what.add_argument(
        "--dev",
        action="append",
        metavar="D",
        help="this disk, partition, dm or md device (a name, node or link); may be given several times "
        "(default: all disks)",
    )
    what.add_argument(
        "--queue",
        action="store_true",
        help="also export how long requests wait in io.max, for admission and in the queue",
    )
    what.add_argument(
        "--by",
        choices=("cgroup",),
        help="also export the ten busiest control groups of each disk, and the rest as `other`",
    )
    what.add_argument(
        "--trim",
        action="store_true",
        help="also predict each hour whether a trim of each filesystem would reach its drive; nothing is "
        "trimmed or written",
    )
    what.add_argument(
        "--drives-every",
        type=time_between(1, 86400, none=True),
        default=_DRIVES_S,
        metavar="T",
        help="time between polls of a drive's own counters (1m; at least 5m for drives behind smartctl and "
        "10m for rotating ones; 0: none)",
    )
    what.add_argument(
        "--drive-deadline",
        type=time_between(0.1, 600),
        default=_DEADLINE_S,
        metavar="T",
        help="count a poll as failed after this time, and poll other drives (10s)",
    )
    what.add_argument(
        "--broker",
        default="",
        metavar="SOCKET",
        help=f"read the kernel and the drives through opwatch-broker at this socket, or `{NO_BROKER}` "
        f"({SOCKET} if it exists)",
    )
    what.add_argument(
        "--series-limit",
        type=count_between(1, 10**6),
        default=4000,
        metavar="N",
        help="most series of an answer; docs/metrics.md lists which go first (4000)",
    )


def _add_web_arguments(parser: argparse.ArgumentParser) -> None:
    web = parser.add_argument_group("web server")
    web.add_argument(
        "--web.listen-address",
        dest="listen",
        action="append",
        metavar="A",
        help=f"address to listen on, as HOST:PORT, [IPv6]:PORT or :PORT; may be given several times "
        f"(:{DEFAULT_PORT})",
    )
    web.add_argument(
        "--web.config.file",
        dest="web_config",
        type=Path,
        metavar="FILE",
        help="TLS, client certificates, passwords and headers, in the format of Prometheus' exporters; read "
        "again at SIGHUP",
    )
    web.add_argument(
        "--web.systemd-socket",
        dest="systemd_socket",
        action="store_true",
        help="use the sockets that systemd passes, instead of listening",
    )


def _add_push_arguments(parser: argparse.ArgumentParser) -> None:
    push = parser.add_argument_group("push")
    push.add_argument(
        "--otlp",
        default="",
        metavar="URL",
        help="also push to this OTLP receiver over HTTP, as JSON; headers are taken from the variable "
        "OTEL_EXPORTER_OTLP_HEADERS",
    )
    push.add_argument(
        "--otlp-every",
        type=time_between(1, 86400),
        default=_PUSH_S,
        metavar="T",
        help="time between pushes (1m)",
    )


def run(args: argparse.Namespace) -> int:
    if args.systemd_socket and args.listen:
        raise UsageError("--web.systemd-socket and --web.listen-address exclude each other")
    for text in args.listen or ():
        parse_address(text)
    if args.otlp:
        # Imported late, because most exporters push nothing.
        from opwatch.tools.exporter.otlp_push import parse_otlp_url

        parse_otlp_url(args.otlp)
    return start_exporter(
        LaunchOptions(
            listen=tuple(args.listen or [f":{DEFAULT_PORT}"]),
            dev=tuple(args.dev or ()),
            web_config=str(args.web_config or ""),
            systemd_socket=args.systemd_socket,
            queue=args.queue,
            by=args.by or "",
            drives_every_s=args.drives_every,
            deadline_s=args.drive_deadline,
            series_limit=args.series_limit,
            broker=args.broker,
            trim=args.trim,
            otlp=args.otlp,
            otlp_every_s=args.otlp_every,
        ),
        print_message,
    )
