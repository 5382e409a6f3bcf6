"""Max address of an ATA drive: commands and answers bit by bit, on a fake ATA drive without a kernel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.collectors.space.scsi import ScsiAnswer
from opwatch.errors import BadInput, OpwatchError, PermissionMissing, RefusedError, Unsupported
from opwatch.host.device import BlockDevice
from opwatch.sweep.ata.commands import (
    AtaRegisters,
    decode_registers,
    make_identify_command,
    make_read_native_command,
    make_set_max_command,
)
from opwatch.tools.acting.addresses import highest as module
from opwatch.tools.acting.addresses import line
from opwatch.tools.acting.addresses.highest import HighestAddress, require_full_size
from tests.vm.guest.atadrive.ata import AtaDrive, DriveConfig, TaskFile
from tests.vm.guest.atadrive.disk import ScsiDisk

SIZE, LEVEL = 16 << 20, 6 << 20


def test_commands_match_the_standard() -> None:
    assert make_identify_command().hex() == "85080e00000001000000000000" + "40ec00"
    assert make_read_native_command(is_accessible=False).hex() == "850720" + "00" * 10 + "402700"
    assert make_read_native_command(is_accessible=True).hex() == "850720" + "00" * 10 + "407800"
    lba = 0x665544332211
    assert make_set_max_command(lba, is_accessible=False).hex() == "85072000000000441155226633403700"
    assert make_set_max_command(lba, is_accessible=True).hex() == "85072000010000441155226633407800"


# The guest's disk (a LIO target) answers READ NATIVE MAX ADDRESS EXT with these bytes.
ANSWERED = bytes.fromhex("7201001d0000000e090c0100000000ff007f00004050")


def test_registers_are_read_from_both_sense_formats() -> None:
    assert decode_registers(ANSWERED) == AtaRegisters(status=0x50, error=0, lba=0x7FFF)
    high = bytes.fromhex("7201001d0000000e090c010000004411552266334050")
    assert decode_registers(high).lba == 0x665544332211
    # Another descriptor comes first.
    behind = bytes.fromhex("720b000000000012" + "02020000") + ANSWERED[8:]
    assert decode_registers(behind).lba == 0x7FFF
    short = bytes.fromhex("70000104514000" + "0a" + "00112233" + "001d" + "00000000")
    assert decode_registers(short) == AtaRegisters(status=0x51, error=0x04, lba=0x332211)
    assert decode_registers(short).is_failed


@pytest.mark.parametrize(
    ("sense", "why"),
    [
        (b"", "registers"),
        (ANSWERED[:20], "registers"),
        (bytes.fromhex("7205200000000000"), "registers"),
        (
            bytes.fromhex("70000500000000" + "0a" + "00000000" + "2000" + "00000000"),
            "registers",
        ),
        (bytes.fromhex("70000150000000" + "0a" + "a0112233" + "001d" + "00000000"), "truncated"),
    ],
)
def test_invalid_answer_is_refused(sense: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        decode_registers(sense)


@given(st.binary(max_size=80), st.sampled_from([0x70, 0x71, 0x72, 0x73, 0x7F]))
def test_any_sense_data_is_decoded_or_refused(rest: bytes, code: int) -> None:
    try:
        registers = decode_registers(bytes([code]) + rest)
    except BadInput:
        return
    assert 0 <= registers.lba < 1 << 48


class Bench:
    """A drive, and a kernel that keeps the drive's size in a file. `meddle` is called before each command."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, wishes: DriveConfig) -> None:
        self.drive = AtaDrive(wishes, folder / "log")
        self.scsi = ScsiDisk(self.drive, -1)
        self.meddle: Callable[[bytes], None] = lambda _: None
        sysfs = folder / "sda"
        (sysfs / "device").mkdir(parents=True)
        (sysfs / "size").write_text(f"{wishes.sectors - wishes.hidden}\n")
        self.disk = BlockDevice("sda", (8, 0), sysfs)
        monkeypatch.setattr(line, "send_scsi", self.answer_scsi)
        monkeypatch.setattr(module, "_PATIENCE_S", 0.0)

    def answer_scsi(self, _: int, command: bytes, length: int, __: int, data: bytes) -> ScsiAnswer:
        self.meddle(command)
        answer = self.scsi.answer_command(command, data)
        return ScsiAnswer(not answer.status, answer.status, answer.data[:length], answer.sense)

    @property
    def max_address(self) -> HighestAddress:
        return HighestAddress(-1, self.disk)


BenchOf = Callable[[DriveConfig], Bench]


@pytest.fixture
def bench_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BenchOf:
    return lambda wishes: Bench(tmp_path, monkeypatch, wishes)


@pytest.mark.parametrize("wishes", [DriveConfig(), DriveConfig(has_area=False, has_accessible=True)])
def test_max_address_is_lowered_and_raised_again(wishes: DriveConfig, bench_of: BenchOf) -> None:
    bench = bench_of(wishes)
    require_full_size(bench.max_address)
    bench.max_address.set_visible_bytes(LEVEL)
    assert (bench.drive.current * 512, bench.max_address.read_visible_bytes()) == (LEVEL, LEVEL)
    assert bench.max_address.read_native_bytes() == SIZE
    bench.max_address.set_visible_bytes(SIZE)
    require_full_size(bench.max_address)


@pytest.mark.parametrize(
    ("wishes", "left"), [(DriveConfig(), SIZE), (DriveConfig(has_area=False, has_accessible=True), LEVEL)]
)
def test_power_loss_undoes_set_max_but_not_its_successor(
    wishes: DriveConfig, left: int, bench_of: BenchOf
) -> None:
    bench = bench_of(wishes)
    bench.max_address.set_visible_bytes(LEVEL)
    bench.drive.lose_power()
    assert bench.max_address.read_visible_bytes() == left


def test_interrupted_command_pair_is_repeated(bench_of: BenchOf) -> None:
    """SET MAX must directly follow READ NATIVE MAX, but smartd may send a command between the two."""
    bench, left = bench_of(DriveConfig()), [2]

    def insert_command(command: bytes) -> None:
        if command[14] == 0x37 and left[0]:
            left[0] -= 1
            bench.drive.run_task(TaskFile(0, 0, 0, 0xE5))

    bench.meddle = insert_command
    bench.max_address.set_visible_bytes(LEVEL)
    assert (left, bench.max_address.read_visible_bytes()) == ([0], LEVEL)


def test_persistent_refusal_is_reported(bench_of: BenchOf) -> None:
    bench = bench_of(DriveConfig(is_stubborn=True))
    with pytest.raises(
        Unsupported,
        match=r"SET MAX ADDRESS EXT .status 51h, error 04h",
    ):
        bench.max_address.set_visible_bytes(LEVEL)
    assert bench.max_address.read_visible_bytes() == SIZE


def test_second_change_is_not_retried_forever(bench_of: BenchOf) -> None:
    bench = bench_of(DriveConfig(has_area=False, has_accessible=True, is_once=True))
    bench.max_address.set_visible_bytes(SIZE)
    with pytest.raises(Unsupported, match=r"SET ACCESSIBLE MAX ADDRESS EXT .*error 10h"):
        bench.max_address.set_visible_bytes(LEVEL)
    log = (bench.disk.sysfs.parent / "log").read_text()
    assert log.count("refused") == 1


def test_address_hidden_by_another_tool_stays_hidden(bench_of: BenchOf) -> None:
    bench = bench_of(DriveConfig(hidden=8192))
    with pytest.raises(RefusedError, match=r"\b12582912 of .*\b16777216 bytes"):
        require_full_size(bench.max_address)


def test_size_mismatch_with_the_kernel_is_noticed(bench_of: BenchOf) -> None:
    bench = bench_of(DriveConfig())
    (bench.disk.sysfs / "size").write_text("4096\n")
    with pytest.raises(RefusedError, match=r"\b2097152\b"):
        require_full_size(bench.max_address)
    assert bench.max_address.rescan() == 2097152
    assert (bench.disk.sysfs / "device" / "rescan").read_text() == "1"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(1, "Operation not permitted"), PermissionMissing),
        (OSError(25, "not a tty"), Unsupported),
    ],
)
def test_failed_ioctl_is_reported(
    error: OSError, kind: type[OpwatchError], bench_of: BenchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(DriveConfig())

    def raise_ioctl_error(*_: object) -> ScsiAnswer:
        raise error

    monkeypatch.setattr(line, "send_scsi", raise_ioctl_error)
    with pytest.raises(kind):
        _ = bench.max_address


SWALLOWED = ScsiAnswer(False, 2, b"", bytes.fromhex("7005200000000000"))
EMPTY = ScsiAnswer(True, 0, bytes(36), b"")


@pytest.mark.parametrize("answer", [SWALLOWED, EMPTY])
def test_bridge_that_drops_ata_commands_is_reported(
    answer: ScsiAnswer, bench_of: BenchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(DriveConfig())
    monkeypatch.setattr(line, "send_scsi", lambda *_: answer)
    with pytest.raises(Unsupported, match="IDENTIFY DEVICE"):
        _ = bench.max_address


def test_bridge_that_returns_no_registers_is_reported(
    bench_of: BenchOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = bench_of(DriveConfig()).max_address
    monkeypatch.setattr(line, "send_scsi", lambda *_: EMPTY)
    with pytest.raises(Unsupported, match="registers"):
        asked.read_native_bytes()
