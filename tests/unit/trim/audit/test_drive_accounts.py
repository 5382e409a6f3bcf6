"""Which drives are polled for trim counters, and how drives that stop answering are treated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from opwatch.collectors.audit import accounts as trim_accounts
from opwatch.collectors.audit.accounts import DriveCounters
from opwatch.counters.evidence import Attribute, Evidence
from opwatch.counters.reading import DriveFacts
from opwatch.errors import OpwatchError
from opwatch.host.device import BlockDevice
from opwatch.trim.audit.accounts import Account, CounterMeaning
from opwatch.trim.space.extents import Extents
from tests.unit.support.sysfs import write_attributes
from tests.unit.support.trim_evidence import make_layer, make_stack

FAMILY = "Sandisk SATA Cloudspeed Max and GEN2 ESS SSDs"


@dataclass
class Bench:
    """A disk with the given attributes; `asked` lists the nodes given to smartctl."""

    device: BlockDevice
    attributes: list[Attribute]
    asked: list[Path] = field(default_factory=list)
    map: Extents | None = None

    def by_name(self, name: str) -> BlockDevice | None:
        return self.device if name == "sda" else None

    def read_smart(self, node: Path) -> Evidence:
        self.asked.append(node)
        if not self.attributes:
            raise OpwatchError("it is gone")
        return Evidence(
            drive=DriveFacts(protocol="ata", family=FAMILY, model="M"), attributes=tuple(self.attributes)
        )


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    def make_bench(vendor: str = "ATA", rotational: str = "0") -> Bench:
        write_attributes(tmp_path, {"device/vendor": vendor, "queue/rotational": rotational})
        made = Bench(
            BlockDevice("sda", (8, 0), tmp_path), [Attribute(207, "Trimmed_Sector_Ct", 1000, "1000")]
        )
        monkeypatch.setattr(trim_accounts, "Devices", lambda: made)
        monkeypatch.setattr(trim_accounts, "find_simulated", lambda _: None)
        (tmp_path / "device" / "scsi_disk").mkdir()
        monkeypatch.setattr("opwatch.collectors.space.lba_status.read_mapped_extents", lambda *_: made.map)
        monkeypatch.setattr("opwatch.collectors.firmware.smart.collect_smart", made.read_smart)
        return made

    return make_bench


def test_a_sata_drive_that_counts_sectors(bench: Callable[..., Bench]) -> None:
    rig = bench()
    accounts = DriveCounters(make_stack(make_layer("sda", "8:0")))
    rig.attributes[0] = Attribute(207, "Trimmed_Sector_Ct", 1013, "1013")
    [account] = accounts.compare_counters()
    assert account == Account(
        "sda", "attribute 207 Trimmed_Sector_Ct", CounterMeaning.TRIMMED, 512, 1000, 1013
    )
    assert account.amount_moved == 13 * 512
    assert rig.asked == [Path("/dev/sda")] * 2


def test_drive_that_vanishes_during_the_trim_has_no_second_count(bench: Callable[..., Bench]) -> None:
    rig = bench()
    accounts = DriveCounters(make_stack(make_layer("sda", "8:0")))
    rig.attributes.clear()
    [account] = accounts.compare_counters()
    assert (account.after, account.amount_moved) == (None, None)


@pytest.mark.parametrize(("vendor", "rotational"), [("QEMU", "0"), ("ATA", "1")])
def test_other_disks_are_not_polled(bench: Callable[..., Bench], vendor: str, rotational: str) -> None:
    rig = bench(vendor, rotational)
    assert DriveCounters(make_stack(make_layer("sda", "8:0"))).compare_counters() == ()
    assert rig.asked == []


def test_drive_without_trim_counters_is_polled_once(bench: Callable[..., Bench]) -> None:
    rig = bench()
    rig.attributes[0] = Attribute(9, "Power_On_Hours", 1, "1")
    assert DriveCounters(make_stack(make_layer("sda", "8:0"))).compare_counters() == ()
    assert len(rig.asked) == 1


def test_map_is_an_account_of_held_bytes(bench: Callable[..., Bench]) -> None:
    rig = bench(vendor="LIO-ORG")
    rig.map = Extents.from_pairs([(0, 1 << 20)])
    accounts = DriveCounters(make_stack(make_layer("sda", "8:0")))
    rig.map = Extents.from_pairs([(0, 1 << 18)])
    [account] = accounts.compare_counters()
    assert (account.counts, account.amount_moved) == (CounterMeaning.HELD, (1 << 20) - (1 << 18))
