"""What the exporter gets from a broker that answers, refuses, hangs, lies or is gone."""

from __future__ import annotations

import errno
import struct
import threading
from pathlib import Path

import pytest

from opwatch.collectors.block.blk import Plan
from opwatch.collectors.broker.connection import BrokerConnection, BrokerError
from opwatch.collectors.broker.drives import BrokerDrives, BrokerPages
from opwatch.collectors.broker.protocol import EVICTED_OWNERS, OWNER_BYTES, RequestKind
from opwatch.collectors.broker.tracing import BrokerLoader, BrokerTracer, ProgramsRejected
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.host.device import BlockDevice, Devices
from opwatch.tools.exporter.broker_access import BrokerAccess
from tests.fuzz.broker import make_packed_sample, make_reply
from tests.unit.broker.fake_broker import Answer, answer_hello, run_fake_broker
from tests.unit.broker.test_protocol import PLAN, PROGRAMS

_OPENED = struct.pack("=4I", 2, 4, 100, 0)


def answer_with(kind: RequestKind, error: int, data: bytes = b"", status: int = 0) -> Answer:
    """Return an answer to this kind, and to a greeting."""

    def answer(asked: RequestKind, tag: int, arguments: bytes) -> bytes | None:
        if asked is kind:
            return make_reply(tag, data, error=error, status=status)
        return answer_hello(asked, tag, arguments)

    return answer


def find_any_disk() -> BlockDevice:
    return next(iter(Devices().iter_disks()), None) or pytest.skip("this machine has no disk")


def load(path: str, plan: Plan = PLAN) -> BrokerTracer:
    tracer = BrokerLoader(path).load(plan, PROGRAMS, queue_time=False, slow_ns=0, by=0)
    assert isinstance(tracer, BrokerTracer)
    return tracer


def test_missing_broker_is_reported_with_the_command_that_starts_it(tmp_path: Path) -> None:
    with pytest.raises(OpwatchError, match=r"systemctl start opwatch-broker\.socket"):
        BrokerAccess(str(tmp_path / "none.sock"))
    with pytest.raises(OpwatchError, match="no broker listens"):
        BrokerAccess("x" * 200)


def test_broker_that_ends_is_seen_as_down(tmp_path: Path) -> None:
    with run_fake_broker(tmp_path, answer_hello) as broker:
        access = BrokerAccess(broker.path)
        assert access.is_broker_up is True
    assert access.is_broker_up is False


def test_refused_user_gets_a_reason(tmp_path: Path) -> None:
    with (
        run_fake_broker(tmp_path, lambda *_: make_reply(0, error=errno.EACCES)) as broker,
        pytest.raises(PermissionMissing, match="--user"),
    ):
        BrokerAccess(broker.path)


def test_full_broker_is_reported(tmp_path: Path) -> None:
    with (
        run_fake_broker(tmp_path, lambda *_: make_reply(0, error=errno.EUSERS)) as broker,
        pytest.raises(OpwatchError, match="too many clients"),
    ):
        BrokerAccess(broker.path)


def test_reply_to_another_request_is_refused(tmp_path: Path) -> None:
    with (
        run_fake_broker(tmp_path, lambda kind, tag, _: make_reply(tag + 1)) as broker,
        pytest.raises(OpwatchError, match="another request"),
    ):
        BrokerAccess(broker.path)


def test_late_reply_is_not_taken_for_the_next(tmp_path: Path) -> None:
    hold = threading.Event()

    def answer(kind: RequestKind, tag: int, arguments: bytes) -> bytes | None:
        hold.wait(10)
        return answer_hello(kind, tag, arguments)

    with run_fake_broker(tmp_path, answer) as broker:
        connection = BrokerConnection(broker.path, 0.05)
        with pytest.raises(TimeoutError):
            connection.greet()
        hold.set()
        with pytest.raises(OpwatchError, match="is lost"):
            connection.greet()


def test_tracer_reads_samples_programs_and_owners(tmp_path: Path) -> None:
    # Two replies of owners: 3 of 5, then the rest.
    owners = bytes(range(5)) * OWNER_BYTES

    def answer(kind: RequestKind, tag: int, arguments: bytes) -> bytes | None:
        if kind is RequestKind.OPEN_TRACER:
            return make_reply(tag, _OPENED, status=3)
        handle, target, offset, _ = struct.unpack_from("=4I", arguments) if arguments else (3, 0, 0, 0)
        assert handle == 3
        if kind is RequestKind.READ_SAMPLE:
            return make_reply(tag, make_packed_sample(1 << target))
        if kind is RequestKind.READ_OWNERS:
            part = owners[offset * OWNER_BYTES :][: 3 * OWNER_BYTES]
            return make_reply(tag, part, status=5)
        if kind is RequestKind.EVICT_OWNERS:
            return make_reply(tag, owners[: 2 * OWNER_BYTES], status=5)
        return answer_hello(kind, tag, arguments)

    with run_fake_broker(tmp_path, answer) as broker:
        tracer = load(broker.path)
        assert (tracer.lanes, tracer.max_owners) == ((2, 4), 100)
        assert len(tracer.sample(1)) == len(tracer.sample(2))
        assert tracer.owners(0) == owners
        assert tracer.evict_owners(1, 2, 3) == owners
        assert struct.unpack_from("=4I", broker.requests[-1][1])[1:3] == (EVICTED_OWNERS, 2)
        tracer.close()


def test_lost_broker_ends_the_tracer_with_an_error(tmp_path: Path) -> None:
    with run_fake_broker(tmp_path, answer_with(RequestKind.OPEN_TRACER, 0, _OPENED)) as broker:
        tracer = load(broker.path)
        with pytest.raises(OpwatchError, match="has closed the connection"):
            tracer.sample(0)


def test_rejected_programs_carry_the_log(tmp_path: Path) -> None:
    answer = answer_with(RequestKind.OPEN_TRACER, errno.EINVAL, b"R1 invalid mem access")
    with run_fake_broker(tmp_path, answer) as broker, pytest.raises(ProgramsRejected) as caught:
        load(broker.path)
    number, _, log = caught.value.args
    assert (number, log) == (errno.EINVAL, "R1 invalid mem access")


def test_missing_capability_of_the_broker_is_named(tmp_path: Path) -> None:
    with (
        run_fake_broker(tmp_path, answer_with(RequestKind.OPEN_TRACER, errno.EPERM)) as broker,
        pytest.raises(PermissionMissing, match="CAP_BPF"),
    ):
        load(broker.path)


def test_slow_requests_are_not_offered(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="slow requests"):
        BrokerLoader(str(tmp_path / "none")).load(PLAN, PROGRAMS, queue_time=False, slow_ns=1, by=0)


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.EBUSY])
def test_drive_that_hangs_is_a_timeout(tmp_path: Path, number: int) -> None:
    with (
        run_fake_broker(tmp_path, answer_with(RequestKind.GET_LOG, number)) as broker,
        pytest.raises(TimeoutError),
    ):
        BrokerPages(broker.path, (259, 0)).get_log(2, 512)


def test_drive_answers_and_refuses(tmp_path: Path) -> None:
    with run_fake_broker(tmp_path, answer_with(RequestKind.GET_LOG, 0, bytes(512))) as broker:
        assert BrokerPages(broker.path, (259, 1)).get_log(2, 512, lsi=3) == bytes(512)
        [(_, arguments)] = broker.requests
        assert struct.unpack("=5IHBx", arguments) == (259, 1, 2, 512, 0, 3, 0)
    Path(broker.path).unlink()
    with (
        run_fake_broker(tmp_path, answer_with(RequestKind.IDENTIFY, 0, status=0x2)) as broker,
        pytest.raises(OpwatchError, match="002h"),
    ):
        BrokerPages(broker.path, (259, 1)).identify(1, 0)


def test_report_of_smartctl_keeps_its_status(tmp_path: Path) -> None:
    disk = find_any_disk()
    with run_fake_broker(tmp_path, answer_with(RequestKind.RUN_SMARTCTL, 0, b"{}", 4)) as broker:
        output = BrokerDrives(broker.path).read_smartctl(disk)
    assert (output.status, output.text) == (4, b"{}")
    Path(broker.path).unlink()
    with (
        run_fake_broker(tmp_path, answer_with(RequestKind.RUN_SMARTCTL, errno.ENOENT)) as broker,
        pytest.raises(Unsupported, match="not installed"),
    ):
        BrokerDrives(broker.path).read_smartctl(disk)


def test_error_of_the_broker_is_an_os_error(tmp_path: Path) -> None:
    with (
        run_fake_broker(tmp_path, answer_with(RequestKind.READ_PROGRAMS, errno.EBADF)) as broker,
        pytest.raises(BrokerError) as caught,
    ):
        BrokerConnection(broker.path, 5).call(RequestKind.READ_PROGRAMS, bytes(16))
    assert caught.value.errno == errno.EBADF
