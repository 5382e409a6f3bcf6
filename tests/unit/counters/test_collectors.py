"""The collectors on fake transports and tools."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from opwatch.collectors.firmware.counting import CounterPoller
from opwatch.collectors.firmware.smart import collect_smart
from opwatch.collectors.firmware.transports import FolderTransport
from opwatch.counters.catalogue.families import load_catalogue
from opwatch.counters.decode.ocp import CLOUD_GUID
from opwatch.counters.looks.nvme import collect_nvme
from opwatch.counters.looks.smartctl import parse_output
from opwatch.counters.looks.transport import CachedIdentify
from opwatch.counters.prove.report import make_report
from opwatch.errors import OpwatchError, PermissionMissing, Unsupported
from opwatch.tools import cli
from opwatch.tools.cli import main
from tests.unit.support.sysfs import make_machine

CATALOGUE = load_catalogue(system=Path("/nonexistent"))
GOOD = Path(__file__).parents[2] / "fixtures" / "good" / "counters"


def encode_controller(model: bytes, *, attributes: int = 0) -> bytes:
    raw = bytearray(4096)
    raw[24:64], raw[64:72], raw[96:100] = model.ljust(40), b"FW".ljust(8), attributes.to_bytes(4, "little")
    raw[280:296] = (10**12).to_bytes(16, "little")
    return bytes(raw)


def encode_smart_log(units: int, commands: int) -> bytes:
    raw = bytearray(512)
    raw[1:3] = (310).to_bytes(2, "little")
    raw[48:64], raw[80:96] = units.to_bytes(16, "little"), commands.to_bytes(16, "little")
    return bytes(raw)


class FakeTransport:
    """Answers from a table, refuses everything else, and records each request."""

    def __init__(self, pages: dict[int, bytes], model: bytes = b"ACME", attributes: int = 0) -> None:
        self.pages, self.model, self.attributes = pages, model, attributes
        self.asked: list[tuple[int, int, int]] = []

    def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
        self.asked.append((lid, lsi, uuid_index))
        if lid not in self.pages:
            raise OpwatchError(f"{lid:02X}h")
        return self.pages[lid][:length]

    def identify(self, cns: int, nsid: int) -> bytes:
        if cns == 1:
            return encode_controller(self.model, attributes=self.attributes)
        raw = bytearray(4096)
        raw[0:8], raw[130], raw[102] = (10**9).to_bytes(8, "little"), 9, 3
        return bytes(raw)


def test_drive_with_standard_pages_is_decoded() -> None:
    cloud = bytearray(512)
    cloud[0:16], cloud[494], cloud[496:512] = (2 * 10**12).to_bytes(16, "little"), 3, CLOUD_GUID
    fake = FakeTransport({2: encode_smart_log(2 * 10**6, 10**8), 0xC0: bytes(cloud)}, attributes=1 << 4)
    counters = make_report(collect_nvme(fake, CATALOGUE), CATALOGUE)
    assert counters.readings["host_written"].value == 2 * 10**6 * 512_000
    assert counters.readings["nand_written"].value == 2 * 10**12
    # The failed log 09h of the namespace's endurance group affects no other reading.
    assert (9, 3, 0) in fake.asked
    assert counters.failures == ("09h",)


def test_completed_write_is_counted_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drive may have counted the write already."""
    tree = make_machine(tmp_path)
    folder = tree.add_disk("loop77", "7:77", tags=[1], attributes={"stat": format_stat(8), "inflight": "0 0"})
    # A completed request leaves the in-flight count immediately and enters the statistics later.
    monkeypatch.setattr(time, "sleep", lambda _: (folder / "stat").write_text(format_stat(24)))
    sample = CounterPoller(tree.devices, tree["loop77"], CATALOGUE).read_sample()
    assert (sample.before, sample.after, sample.flying) == (8 * 512, 24 * 512, 0)


def format_stat(sectors: int) -> str:
    """Return the kernel's statistics of a disk with this many written sectors."""
    return f"0 0 0 0 1 0 {sectors} 0 0 0 0 0 0 0 0 0 0\n"


def test_vendor_pages_are_read_only_for_drives_in_the_catalogue() -> None:
    items = b"".join(
        bytes((key, 0, 0, 100, 0)) + raw.to_bytes(6, "little") + b"\0"
        for key, raw in ((0xF4, 9000), (0xF5, 6000))
    )
    pages = {2: encode_smart_log(6000 * (1 << 25) // 512_000, 10**7), 0xCA: items.ljust(512, b"\0")}
    intel = FakeTransport(pages, b"INTEL SSDPE2KX010T8")
    assert make_report(collect_nvme(intel, CATALOGUE), CATALOGUE).readings["nand_written"].value == 9000 << 25
    acme = FakeTransport(pages)
    assert make_report(collect_nvme(acme, CATALOGUE), CATALOGUE).readings["nand_written"].value is None
    assert 0xCA not in [lid for lid, _, _ in acme.asked]


def test_drive_that_refuses_every_page_has_reasons() -> None:
    counters = make_report(collect_nvme(FakeTransport({}), CATALOGUE), CATALOGUE)
    assert all(
        reading.value is None and reading.reason
        for name, reading in counters.readings.items()
        if name != "nuse"
    )


def test_folder_is_read_as_a_single_drive(tmp_path: Path) -> None:
    (tmp_path / "identify-controller").write_bytes(encode_controller(b"Simulated"))
    (tmp_path / "log-02").write_bytes(encode_smart_log(10**6, 10**7))
    (tmp_path / "truth.json").write_text("{}")
    evidence = collect_nvme(FolderTransport(tmp_path), CATALOGUE)
    assert evidence.drive.model == "Simulated"
    assert make_report(evidence, CATALOGUE).readings["host_written"].value == 512 * 10**9


def test_missing_privilege_is_a_single_error() -> None:
    class DeniedTransport(FakeTransport):
        def get_log(self, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> bytes:
            raise PermissionMissing("log pages need CAP_SYS_ADMIN")

    with pytest.raises(PermissionMissing):
        collect_nvme(DeniedTransport({}), CATALOGUE)


def install_smartctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "smartctl"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


def test_smartctl_does_not_wake_sleeping_drives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = GOOD / "smartctl_exporter" / "sat-Phison_Driven_SSDs-KINGSTON_SA400M8120G-sda.json"
    install_smartctl(tmp_path, monkeypatch, f"cat '{path}'; exit 4")
    counters = make_report(collect_smart(Path("/dev/sda")), CATALOGUE)
    assert counters.readings["host_written"].value == 398 << 30
    assert "-n standby" in (tmp_path / "calls").read_text()


def test_drive_behind_a_controller_is_read_by_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = GOOD / "smartctl_exporter" / "HITACHI_H109060SESUN600G_9.json"
    install_smartctl(
        tmp_path,
        monkeypatch,
        f"case \"$*\" in *genstats*) echo '{{}}'; exit 1;; *'-d megaraid,3 /dev/sda') cat '{path}';; esac",
    )
    assert collect_smart(Path("/dev/sda"), "megaraid,3").scsi
    with pytest.raises(OpwatchError):
        collect_smart(Path("/dev/sda"))


@pytest.mark.parametrize(
    ("message", "hinted"),
    [
        ("DELL or MegaRaid controller, please try adding '-d megaraid,N'", True),
        ("/dev/sda: Unknown device type 'megaraidd,3'", True),
        ("Smartctl open device: /dev/bus/0 [megaraid_disk_09] failed: INQUIRY failed", True),
        ("Smartctl open device: /dev/sda failed: No such device", False),
    ],
)
def test_smartctl_advice_names_the_opwatch_option(message: str, *, hinted: bool) -> None:
    said = json.dumps({"smartctl": {"exit_status": 2, "messages": [{"string": message}]}})
    with pytest.raises(Unsupported) as refused:
        parse_output(2, said)
    assert message in str(refused.value)
    assert ("--type megaraid,N" in str(refused.value)) == hinted


@pytest.mark.parametrize("kind", ["-H", "megaraid,3;reboot", "megaraid,", "MEGARAID,1", "", "a b"])
def test_unknown_smartctl_type_is_refused(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["counters", "--dev", "sda", f"--type={kind}"])
    assert "megaraid,3" in capsys.readouterr().err


def test_device_type_needs_a_single_live_drive(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["counters", "--dev", "sda", "--dev", "sdb", "--type", "megaraid,3"]) == 2
    assert main(["counters", "--from", "x", "--type", "megaraid,3"]) == 2
    assert "--type" in capsys.readouterr().err


def test_old_smartctl_is_retried_without_new_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = GOOD / "smartctl_exporter" / "sat-Phison_Driven_SSDs-KINGSTON_SA400M8120G-sda.json"
    install_smartctl(
        tmp_path, monkeypatch, f"case \"$*\" in *genstats*) echo '{{}}'; exit 1;; esac; cat '{path}'"
    )
    assert collect_smart(Path("/dev/sda")).attributes
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_smartctl_open_failure_gives_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_smartctl(tmp_path, monkeypatch, 'echo \'{"smartctl":{"exit_status":2}}\'; exit 2')
    with pytest.raises(Unsupported):
        collect_smart(Path("/dev/sda"))


def test_the_command_writes_the_document_of_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    path = GOOD / "linuxhw" / "samsung_pm883_241host_251nand.txt"
    assert cli.main(["counters", "--from", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "opwatch/1"
    for side in ("host_written", "nand_written"):
        assert set(document[side]) >= {"bytes", "quantum_bytes", "source", "proof", "reason"}
        assert type(document[side]["bytes"]) is int and type(document[side]["quantum_bytes"]) is int
        assert (
            document[side]["proof"] in ("spec", "calibrated", "catalogue")
            and document[side]["reason"] is None
        )
    assert document["temperature"] == {
        "value": 24,
        "quantum": 1,
        "unit": "celsius",
        "source": "the drive's sensor",
        "proof": "spec",
        "reason": None,
        "caveat": None,
        "age_s": None,
        "refresh_s": None,
        "lower_bound": False,
    }


def test_the_table_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for path in sorted((GOOD / "linuxhw").glob("*.txt")):
        assert cli.main(["counters", "--from", str(path)]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize(
    "argv", [["--from", "/nonexistent"], ["--dev", "nothing-here"], ["--from", "/dev/null"]]
)
def test_bad_arguments_are_usage_errors(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["counters", *argv]) == 2
    assert "opwatch:" in capsys.readouterr().err


def test_poll_costs_a_command_per_page_and_identifies_once() -> None:
    class CountingTransport(FakeTransport):
        identified = 0

        def identify(self, cns: int, nsid: int) -> bytes:
            self.identified += 1
            return super().identify(cns, nsid)

    cloud = bytearray(512)
    cloud[0:16], cloud[494], cloud[496:512] = (10**12).to_bytes(16, "little"), 3, CLOUD_GUID
    fake = CountingTransport({2: encode_smart_log(10**6, 10**7), 0xC0: bytes(cloud)})
    once = CachedIdentify(fake)
    collect_nvme(once, CATALOGUE)
    asked, identified = len(fake.asked), fake.identified
    for _ in range(3):
        collect_nvme(once, CATALOGUE)
    assert [lid for lid, _, _ in fake.asked] == [2, 0xC0] * 4
    assert (asked, fake.identified) == (2, identified)
