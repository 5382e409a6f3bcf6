"""Tests of the bench itself: guests that boot, hang, end or fail, a single guest at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm import devices, suite
from tests.vm.boot.machine import Machine
from tests.vm.config import Kernel
from tests.vm.emulator_retry import retry_emulator_failures
from tests.vm.errors import CommandTimeout, GuestHung, GuestLost, GuestPanic
from tests.vm.run import main
from tests.vm.suite import GuestFile

# Many times the usual duration on a busy machine, to find a boot that waits for something.
BOOT_LIMIT_S = 150.0
# A slow machine needs more than the first limit for the start of pytest.
STUCK_LIMITS_S = (30.0, 120.0, 480.0)


def test_boots_within_the_limit(bootable: Kernel, report: Callable[[str], None]) -> None:
    with Machine(bootable) as machine:
        report(f"{bootable.name}: {machine.release} up after {machine.boot_s:.1f} s")
        assert machine.release.startswith(bootable.series)
        assert machine.boot_s < BOOT_LIMIT_S


def test_stuck_test_file_shows_its_progress(bootable: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "test_stuck.py"
    path.write_text("import time\ndef test_well(): pass\ndef test_stuck(): time.sleep(10000)\n")
    for limit_s in STUCK_LIMITS_S:
        said: list[bytes] = []
        with pytest.raises(CommandTimeout):
            suite.run_file(bootable, GuestFile(path, (), 2, (), limit_s), said.append)
        output = b"".join(said).decode()
        if "::test_stuck" in output:
            break
    assert "test_well PASSED" in output
    assert "test_stuck" in output
    assert "the guest after that" in output


def test_hung_guest_raises_its_own_error(bootable: Kernel) -> None:
    with Machine(bootable) as machine:
        machine.pong_timeout_s = 1
        machine.run(["sh", "-c", "echo a line of the console >/dev/console"])
        machine.run_monitor_command("stop")
        with pytest.raises(GuestHung, match="a line of the console"):
            machine.run(["true"], timeout_s=1)


def test_panic_raises_its_own_error(bootable: Kernel) -> None:
    with Machine(bootable) as machine, pytest.raises(GuestPanic, match="sysrq") as caught:
        machine.run(["sh", "-c", "echo c >/proc/sysrq-trigger"], timeout_s=300)
    assert "Kernel panic" in caught.value.console


def test_lost_guest_raises_its_own_error(bootable: Kernel) -> None:
    with Machine(bootable) as machine:
        machine.run_monitor_command("quit")
        with pytest.raises(GuestLost) as caught:
            machine.run(["true"])
    assert not isinstance(caught.value, GuestPanic)


def test_disk_is_unplugged_from_the_host(bootable: Kernel) -> None:
    retry_emulator_failures(lambda: _unplug_disk(bootable))


def _unplug_disk(kernel: Kernel) -> None:
    chosen = devices.choose_devices(["virtio-blk"], devices.read_devices())
    with Machine(kernel, chosen) as machine:
        machine.run_monitor_command("device_del", id="virtio-blk")
        deadline = time.monotonic() + 180
        while machine.run(["test", "-e", "/sys/block/vda"]).status == 0:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_command_line_passes_on_status_and_output(
    bootable: Kernel, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    status = main(["--kernel", bootable.name, "--", "sh", "-c", "uname -r; exit 3"])
    assert status == 3
    assert capfdbinary.readouterr().out.startswith(bootable.series.encode())


def test_unknown_kernel_error_lists_the_known_kernels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kernel", "2.4", "--", "true"]) == 125
    assert "6.12" in capsys.readouterr().err
