"""A tracer whose programs the broker loads."""

from __future__ import annotations

import errno
from collections.abc import Callable

from opwatch.collectors.block.blk import LoadedTracer, Plan
from opwatch.collectors.broker.connection import BrokerConnection, BrokerError
from opwatch.collectors.broker.protocol import (
    EVICTED_OWNERS,
    OWNER_BYTES,
    OpenedTracer,
    Reply,
    RequestKind,
    decode_opened,
    decode_programs,
    pack_evict,
    pack_open,
    pack_tracer,
    unpack_sample,
)
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.trace.programs import ProgramSet

# Longer than the broker's own limit, after which it answers ETIMEDOUT.
_TIMEOUT_S = 35
# Counters are read at once, and a reader such as a scrape does not wait longer.
_READ_TIMEOUT_S = 2


class ProgramsRejected(Exception):
    """The kernel refused the programs; the arguments are (errno, what, log), as those of ProbeError."""


class BrokerLoader:
    """Loads programs by the broker, a connection per tracer."""

    rejected: type[Exception] = ProgramsRejected

    def __init__(self, path: str) -> None:
        self._path = path

    def load(
        self, plan: Plan, programs: ProgramSet, *, queue_time: bool, slow_ns: int, by: int
    ) -> LoadedTracer:
        if slow_ns:
            raise Unsupported(
                "opwatch-broker does not report slow requests: they name other users' processes"
            )
        connection = BrokerConnection(self._path, _TIMEOUT_S)
        try:
            connection.greet()
            arguments = pack_open(plan, programs, queue_time=queue_time, by=by)
            opened = decode_opened(_call(lambda: connection.call(RequestKind.OPEN_TRACER, arguments)))
        except BaseException:
            connection.close()
            raise
        return BrokerTracer(connection, opened)


def _call(call: Callable[[], Reply]) -> Reply:
    """Return the reply, or raise an error that says what to do."""
    what = "cannot load or attach the block tracer"
    try:
        return call()
    except BrokerError as error:
        number = error.errno or 0
        if number == errno.EPERM:
            raise PermissionMissing(f"{what}: opwatch-broker needs CAP_BPF and CAP_PERFMON") from error
        if number == errno.EBUSY:
            raise OpwatchError(f"{what}: opwatch-broker is busy; try again") from error
        if number == errno.EMFILE:
            raise OpwatchError(f"{what}: opwatch-broker has too many tracers open") from error
        raise ProgramsRejected(number, what, error.log) from error
    except TimeoutError as error:
        raise OpwatchError(f"opwatch-broker did not answer within {_TIMEOUT_S} s") from error


class BrokerTracer:
    """The counters of programs that the broker has loaded; has the interface of opwatch._native.Tracer.

    Raises OpwatchError when the broker is gone; the counters are gone too then.
    """

    def __init__(self, connection: BrokerConnection, opened: OpenedTracer) -> None:
        self._connection = connection
        self._handle = opened.handle
        self.lanes = (opened.lanes, opened.cpus)
        self.max_owners = opened.max_owners
        self.throttle_error = opened.throttle_error

    def _ask(self, kind: RequestKind, arguments: bytes) -> Reply:
        try:
            return self._connection.call(kind, arguments, _READ_TIMEOUT_S)
        except BrokerError as error:
            raise OpwatchError(f"opwatch-broker cannot read the tracer: {error.strerror}") from error
        except TimeoutError as error:
            raise OpwatchError(f"opwatch-broker did not answer within {_READ_TIMEOUT_S} s") from error

    def sample(self, target: int) -> bytes:
        return unpack_sample(self._ask(RequestKind.READ_SAMPLE, pack_tracer(self._handle, target)).data)

    def programs(self) -> list[tuple[str, int, int, int, int]]:
        return decode_programs(self._ask(RequestKind.READ_PROGRAMS, pack_tracer(self._handle)).data)

    def owners(self, target: int, /) -> bytes:
        first = self._ask(RequestKind.READ_OWNERS, pack_tracer(self._handle, target))
        return self._complete(first, target)

    def evict_owners(self, keep: int, max_kept: int, idle_ns: int, /) -> bytes:
        arguments = pack_evict(self._handle, keep, max_kept, idle_ns)
        return self._complete(self._ask(RequestKind.EVICT_OWNERS, arguments), EVICTED_OWNERS)

    def _complete(self, first: Reply, target: int) -> bytes:
        """Return a list of owners whose first part is known. The reply's status is their number."""
        parts, length = [first.data], len(first.data)
        while length < first.status * OWNER_BYTES:
            arguments = pack_tracer(self._handle, target, length // OWNER_BYTES)
            parts.append(self._ask(RequestKind.READ_OWNERS, arguments).data)
            if not parts[-1]:
                raise OpwatchError("opwatch-broker sent an incomplete list of owners")
            length += len(parts[-1])
        return b"".join(parts)

    def slow(self) -> tuple[bytes, bytes]:
        raise Unsupported("opwatch-broker does not report slow requests")

    def chain(self, issued: int, done: int, /) -> None:
        raise Unsupported("opwatch-broker does not trace discards")

    def close(self) -> None:
        """Close the connection; the broker then closes the tracer."""
        self._connection.close()
