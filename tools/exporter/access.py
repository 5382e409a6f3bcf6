"""What the exporter needs from the machine with privileges. Everything else is readable by any user in /sys.

`DirectAccess` is for an exporter that runs as root. A broker offers the same interface to an exporter
without privileges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from opwatch.host.device import Leaf
from opwatch.owners.cells import OwnerGrouping
from opwatch.trace.tracing import Tracer

if TYPE_CHECKING:
    from opwatch.collectors.firmware.counting import DriveAccess


class HostAccess(Protocol):
    """Privileged access to the machine from construction to close()."""

    @property
    def is_broker_up(self) -> bool | None:
        """Return whether the broker answers, or None without a broker."""

    @property
    def drives(self) -> DriveAccess:
        """Return the access to log pages. Its calls are made in one thread per drive, several at a time."""

    def attach_tracer(self, leaves: Sequence[Leaf], *, queue_time: bool, by: OwnerGrouping | None) -> Tracer:
        """Return a tracer of these disks, attached until its close(). Called in a thread.

        With `by`, the tracer is a BlockTracer, whose owners are read. Its read() may raise OpwatchError if
        the tracer is lost, e.g. when the broker restarts; the exporter then attaches again.
        """

    def close(self) -> None:
        """Release what the access itself holds. Tracers and readers are closed before."""


class DirectAccess:
    """Access by this process itself, which needs the capabilities for tracing and for log pages."""

    is_broker_up: bool | None = None

    @property
    def drives(self) -> DriveAccess:
        # Imported late, because hosts without drives do not need it.
        from opwatch.collectors.firmware.counting import OwnAccess

        return OwnAccess()

    def attach_tracer(self, leaves: Sequence[Leaf], *, queue_time: bool, by: OwnerGrouping | None) -> Tracer:
        # Imported late, because other kinds of access do not need the tracer.
        from opwatch.collectors.block.blk import BlockTracer

        return BlockTracer(leaves, queue_time=queue_time, by=by)

    def close(self) -> None:
        """Do nothing, because this access holds nothing itself."""
