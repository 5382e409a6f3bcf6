"""Start an exporter from options that another process parsed.

The command line's modules take 3 MB that the exporter does not need, so the command replaces its process by
one that imports this module alone.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from opwatch.collectors.broker.protocol import SOCKET
from opwatch.errors import OpwatchError
from opwatch.host.privilege import EXPORTER_CAPABILITIES, EXPORTER_WITH_BROKER, drop_privileges
from opwatch.metrics.series_limit import DEFAULT_SERIES_LIMIT
from opwatch.owners.cells import OwnerGrouping
from opwatch.tools.exporter.access import DirectAccess, HostAccess
from opwatch.tools.exporter.disk_counters import CountingOptions
from opwatch.tools.exporter.exporter import Exporter, ExporterOptions
from opwatch.tools.exporter.listening import format_address, open_listeners, take_systemd_sockets

NO_BROKER = "none"
# Read by the C library when the new process starts. Threads that poll drives are few and short, and do not
# need memory areas of their own; large samples are given back at once. Tracebacks do without columns.
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "PYTHONNODEBUGRANGES": "1",
}


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """The options of the command line, as plain texts and numbers."""

    listen: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    web_config: str = ""
    systemd_socket: bool = False
    queue: bool = False
    by: str = ""
    drives_every_s: float = 60.0
    deadline_s: float = 10.0
    series_limit: int = DEFAULT_SERIES_LIMIT
    # A socket, or NO_BROKER; empty for the usual socket if there is one.
    broker: str = ""
    trim: bool = False
    otlp: str = ""
    otlp_every_s: float = 60.0

    def to_words(self) -> list[str]:
        """Return the options as words of a command line."""
        words = []
        for column in fields(self):
            value = getattr(self, column.name)
            values = (
                value if isinstance(value, tuple) else (int(value) if isinstance(value, bool) else value,)
            )
            words += [f"{column.name}={one}" for one in values]
        return words

    @classmethod
    def from_words(cls, words: Sequence[str]) -> LaunchOptions:
        """Return the options of to_words()."""
        texts: dict[str, list[str]] = {}
        for word in words:
            name, _, value = word.partition("=")
            texts.setdefault(name, []).append(value)
        values: dict[str, object] = {}
        plain = cls()
        for name in texts.keys() & {column.name for column in fields(cls)}:
            default, given = getattr(plain, name), texts[name]
            if isinstance(default, tuple):
                values[name] = tuple(given)
            elif isinstance(default, bool):
                values[name] = given[-1] == "1"
            else:
                values[name] = type(default)(given[-1])
        return cls(**values)  # type: ignore[arg-type]


def start_exporter(options: LaunchOptions, say: Callable[[str], None]) -> int:
    """Replace this process by an exporter, or be one if the interpreter cannot be started again. Return the
    exit status."""
    # A reload that comes before the exporter serves waits until then, instead of ending the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    # -P: import nothing from the current folder, which may belong to another user.
    argv = [sys.executable, "-P", "-m", "opwatch.tools.exporter.lean"]
    try:
        os.execve(sys.executable, [*argv, *options.to_words()], {**_ENVIRONMENT, **os.environ})
    except OSError:
        # A user without access to the interpreter's folder, to which the privileges were dropped.
        return run_exporter(options, say)


def open_access(broker: str, say: Callable[[str], None]) -> HostAccess:
    """Return the access by the broker if there is one, else by this process itself."""
    if broker == NO_BROKER or (not broker and not Path(SOCKET).exists()):
        return DirectAccess()
    # Imported late, because an exporter without the broker does not need it.
    from opwatch.tools.exporter.broker_access import BrokerAccess

    try:
        return BrokerAccess(broker or SOCKET)
    except OpwatchError as error:
        if broker or os.geteuid() != 0:
            raise
        say(f"running without the broker: {error}")
        return DirectAccess()


def run_exporter(options: LaunchOptions, say: Callable[[str], None]) -> int:
    """Serve until a signal. Return the exit status, or raise OpwatchError if the start fails."""
    access = open_access(options.broker, say)
    listeners = take_systemd_sockets(os.environ) if options.systemd_socket else open_listeners(options.listen)
    drop_privileges(EXPORTER_CAPABILITIES if access.is_broker_up is None else EXPORTER_WITH_BROKER)
    try:
        exporter = Exporter(_make_exporter_options(options), access, listeners, say)
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    try:
        _announce(exporter, listeners, say)
        if access.is_broker_up is None and os.geteuid() == 0:
            say("running as root without the broker; with opwatch-broker, the exporter needs no privileges")
        exporter.run()
    finally:
        exporter.close()
        access.close()
    return 0


def _make_exporter_options(options: LaunchOptions) -> ExporterOptions:
    return ExporterOptions(
        names=options.dev or None,
        counting=CountingOptions(options.queue, OwnerGrouping(options.by) if options.by else None),
        drives_every_s=options.drives_every_s,
        deadline_s=options.deadline_s,
        series_limit=options.series_limit,
        web_config=Path(options.web_config) if options.web_config else None,
        trim=options.trim,
        otlp=options.otlp,
        otlp_every_s=options.otlp_every_s,
    )


def _announce(exporter: Exporter, listeners: Sequence[socket.socket], say: Callable[[str], None]) -> None:
    for note in exporter.disks.notes:
        say(note)
    scheme = "https" if exporter.has_tls else "http"
    count = len(exporter.disks.leaves)
    for listener in listeners:
        address = listener.getsockname()
        where = f"{scheme}://{format_address(address)}" if isinstance(address, tuple) else f"{address}"
        say(f"serving the metrics of {count} disk{'s' * (count != 1)} at {where}/metrics")
