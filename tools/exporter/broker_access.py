"""Privileged access by opwatch-broker, for an exporter without privileges."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from opwatch.collectors.block.blk import BlockTracer
from opwatch.collectors.broker.connection import BrokerConnection
from opwatch.collectors.broker.drives import BrokerDrives
from opwatch.collectors.broker.protocol import SOCKET
from opwatch.collectors.broker.tracing import BrokerLoader
from opwatch.collectors.firmware.counting import DriveAccess
from opwatch.errors import OpwatchError
from opwatch.host.device import Leaf
from opwatch.owners.cells import OwnerGrouping
from opwatch.trace.tracing import Tracer

# The broker's server process waits for nothing, so a longer silence means that it is not running well.
_GREETING_S = 0.5


class BrokerAccess:
    """Access by the broker that listens on `path`. Raise OpwatchError if none answers at first."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self.drives: DriveAccess = BrokerDrives(path)
        self._greet()

    def _greet(self) -> None:
        with closing(BrokerConnection(self._path, _GREETING_S)) as connection:
            try:
                connection.greet()
            except TimeoutError as error:
                raise OpwatchError(f"opwatch-broker at {self._path} does not answer") from error

    @property
    def is_broker_up(self) -> bool | None:
        try:
            self._greet()
        except OpwatchError:
            return False
        return True

    def attach_tracer(self, leaves: Sequence[Leaf], *, queue_time: bool, by: OwnerGrouping | None) -> Tracer:
        return BlockTracer(leaves, queue_time=queue_time, by=by, loader=BrokerLoader(self._path))

    def close(self) -> None:
        """Do nothing, because connections belong to tracers and commands."""
