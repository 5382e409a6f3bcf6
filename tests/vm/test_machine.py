"""The bench itself: what comes back from a guest, and how it is told from a guest gone wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vm import devices, suite
from tests.vm.config import CHECKOUT, Kernel
from tests.vm.errors import CommandTimeout, GuestHung, GuestLost, GuestPanic
from tests.vm.machine import Machine
from tests.vm.run import main
from tests.vm.suite import GuestFile

# It holds a guest and boots a second: two processes that did so would wait for each other's places.
pytestmark = pytest.mark.xdist_group("machine")
BOOT_LIMIT_S = 20.0
BOOTS = 3


@pytest.fixture(scope="module")
def machine(bootable: Kernel) -> Iterator[Machine]:
    with Machine(bootable) as running:
        yield running


def test_boots_within_the_limit(machine: Machine, report: Callable[[str], None]) -> None:
    """The shortest of some boots: others may have the processors during one."""
    report(f"{machine.kernel.name}: {machine.release} up after {machine.boot_s:.1f} s")
    assert machine.release.startswith(machine.kernel.series)
    boots = [machine.boot_s]
    while min(boots) >= BOOT_LIMIT_S and len(boots) < BOOTS:
        with Machine(machine.kernel) as again:
            boots.append(again.boot_s)
    assert min(boots) < BOOT_LIMIT_S, boots


@pytest.mark.parametrize(("script", "status"), [("true", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_status_comes_back(machine: Machine, script: str, status: int) -> None:
    assert machine.run(["sh", "-c", script]).status == status


def test_missing_command_is_127(machine: Machine) -> None:
    done = machine.run(["no-such-command"])
    assert done.status == 127
    assert b"no-such-command" in done.stderr


def test_streams_stay_apart_and_whole(machine: Machine) -> None:
    size = 5_000_011
    script = f"head -c {size} /dev/zero; echo talk >&2"
    done = machine.run(["sh", "-c", script])
    assert len(done.stdout) == size
    assert not done.stdout.strip(b"\0")
    assert done.stderr == b"talk\n"


def test_output_of_a_background_process_does_not_hold_up(machine: Machine) -> None:
    done = machine.run(["sh", "-c", "sleep 1000 & echo done"], timeout_s=120)
    assert done.stdout == b"done\n"


def test_guest_sees_the_checkout_and_spoils_nothing(machine: Machine) -> None:
    probe = "tests/vm/written-in-the-guest"
    done = machine.run(["sh", "-c", f"test -f tests/vm/kernels.toml && echo x >{probe} && pwd"])
    assert done.status == 0
    assert done.stdout.decode().strip() == str(CHECKOUT)
    assert not (CHECKOUT / probe).exists()


def test_timeout_kills_the_command_and_keeps_the_guest(machine: Machine) -> None:
    with pytest.raises(CommandTimeout, match="sleep 10000"):
        machine.run(["sh", "-c", "sleep 10000"], timeout_s=1)
    assert machine.run(["true"]).status == 0


def test_a_file_that_stands_still_shows_how_far_it_came(bootable: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "test_stuck.py"
    path.write_text("import time\ndef test_well(): pass\ndef test_stuck(): time.sleep(10000)\n")
    said: list[bytes] = []
    with pytest.raises(CommandTimeout):
        suite.run(bootable, GuestFile(path, (), 2, (), 60.0), said.append)
    output = b"".join(said).decode()
    assert "test_well PASSED" in output
    assert "test_stuck" in output
    assert "the guest after that" in output


def test_hung_guest_is_its_own_error(bootable: Kernel) -> None:
    with Machine(bootable) as machine:
        machine.pong_timeout_s = 1
        machine.run(["sh", "-c", "echo a line of the console >/dev/console"])
        machine.monitor("stop")
        with pytest.raises(GuestHung, match="a line of the console"):
            machine.run(["true"], timeout_s=1)


def test_panic_is_its_own_error(bootable: Kernel) -> None:
    with Machine(bootable) as machine, pytest.raises(GuestPanic, match="sysrq") as caught:
        machine.run(["sh", "-c", "echo c >/proc/sysrq-trigger"], timeout_s=300)
    assert "Kernel panic" in caught.value.console


def test_lost_guest_is_its_own_error(bootable: Kernel) -> None:
    with Machine(bootable) as machine:
        machine.monitor("quit")
        with pytest.raises(GuestLost) as caught:
            machine.run(["true"])
    assert not isinstance(caught.value, GuestPanic)


def test_unplug_from_the_host(bootable: Kernel) -> None:
    chosen = devices.choose(["virtio-blk"], devices.load())
    with Machine(bootable, chosen) as machine:
        machine.monitor("device_del", id="virtio-blk")
        deadline = time.monotonic() + 180
        while machine.run(["test", "-e", "/sys/block/vda"]).status == 0:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_command_line(bootable: Kernel, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    status = main(["--kernel", bootable.name, "--", "sh", "-c", "uname -r; exit 3"])
    assert status == 3
    assert capfdbinary.readouterr().out.startswith(bootable.series.encode())


def test_unknown_kernel_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kernel", "2.4", "--", "true"]) == 125
    assert "6.12" in capsys.readouterr().err
