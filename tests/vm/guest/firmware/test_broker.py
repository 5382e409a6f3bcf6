"""Pages of an NVMe drive through the broker: the same bytes as without it, and only commands that read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opwatch.collectors.broker.connection import BrokerConnection, BrokerError
from opwatch.collectors.broker.protocol import RequestKind, pack_drive
from opwatch.collectors.firmware.counting import CounterPoller, PageReader
from opwatch.collectors.firmware.transports import KernelTransport
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.errors import OpwatchError, PermissionMissing
from opwatch.host.device import BlockDevice, Devices
from opwatch.tools.exporter.broker_access import BrokerAccess
from tests.kernel.support.broker import RunningBroker, run_broker
from tests.vm.guest.support import sysfs

DEVICES = ("nvme-ocp",)
# Log pages and their lengths.
PAGES = {0x02: 512, 0x09: 512, 0x22: 64, 0xC0: 512}


@pytest.fixture(scope="module")
def disk() -> BlockDevice:
    found = Devices().by_name(sysfs.disk("opw-nvme-ocp"))
    assert found
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with run_broker() as running:
        yield running


@pytest.fixture
def pages(broker: RunningBroker, disk: BlockDevice) -> PageReader:
    return BrokerAccess(broker.socket).drives.open_pages(disk)


def test_pages_equal_those_without_the_broker(pages: PageReader, disk: BlockDevice) -> None:
    with closing(KernelTransport(Path("/dev") / disk.name)) as transport:
        for lid, length in PAGES.items():
            assert pages.get_log(lid, length, lsi=1) == transport.get_log(lid, length, lsi=1)
        for cns in (0, 1):
            assert pages.identify(cns, 1 - cns) == transport.identify(cns, 1 - cns)


def test_refused_command_reports_the_nvme_status(pages: PageReader) -> None:
    with pytest.raises(OpwatchError, match="refused it with status"):
        pages.get_log(0xE5, 512)


def test_page_outside_the_allow_list_is_refused(pages: PageReader, broker: RunningBroker) -> None:
    for lid in (0x01, 0x03, 0x07, 0x0D, 0x70):
        with pytest.raises(PermissionMissing):
            pages.get_log(lid, 512)


def test_smartctl_is_not_run_for_nvme(broker: RunningBroker, disk: BlockDevice) -> None:
    with closing(BrokerConnection(broker.socket, 20)) as connection, pytest.raises(BrokerError):
        connection.call(RequestKind.RUN_SMARTCTL, pack_drive(disk.dev))


def test_counters_equal_those_without_the_broker(broker: RunningBroker, disk: BlockDevice) -> None:
    reports = []
    for access in (BrokerAccess(broker.socket).drives, None):
        with closing(CounterPoller(Devices(), disk, load_catalogue(), access)) as poller:
            reports.append(poller.read_report())
    by_broker, direct = reports
    assert by_broker.readings["host_written"].value == direct.readings["host_written"].value is not None
    assert by_broker.readings["nand_written"].value == direct.readings["nand_written"].value is not None
    assert by_broker.failures == direct.failures == ()
