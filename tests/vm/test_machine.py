"""Tests of the bench itself: status and output of commands in a guest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.vm.boot.machine import Machine
from tests.vm.config import CHECKOUT, Kernel
from tests.vm.errors import CommandTimeout


# No test here may boot a second guest: two processes that each hold a slot would wait for each other's.
@pytest.fixture(scope="module")
def machine(bootable: Kernel) -> Iterator[Machine]:
    with Machine(bootable) as running:
        yield running


@pytest.mark.parametrize(("script", "status"), [("true", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_run_returns_the_exit_status(machine: Machine, script: str, status: int) -> None:
    assert machine.run(["sh", "-c", script]).status == status


def test_missing_command_is_127(machine: Machine) -> None:
    done = machine.run(["no-such-command"])
    assert done.status == 127
    assert b"no-such-command" in done.stderr


def test_stdout_and_stderr_are_separate_and_complete(machine: Machine) -> None:
    size = 5_000_011
    script = f"head -c {size} /dev/zero; echo talk >&2"
    done = machine.run(["sh", "-c", script])
    assert len(done.stdout) == size
    assert not done.stdout.strip(b"\0")
    assert done.stderr == b"talk\n"


def test_background_process_does_not_block_run(machine: Machine) -> None:
    done = machine.run(["sh", "-c", "sleep 1000 & echo done"], timeout_s=120)
    assert done.stdout == b"done\n"


def test_guest_reads_the_checkout_but_does_not_change_files(machine: Machine) -> None:
    probe = "tests/vm/written-in-the-guest"
    done = machine.run(["sh", "-c", f"test -f tests/vm/kernels.toml && echo x >{probe} && pwd"])
    assert done.status == 0
    assert done.stdout.decode().strip() == str(CHECKOUT)
    assert not (CHECKOUT / probe).exists()


def test_timeout_kills_the_command_and_keeps_the_guest(machine: Machine) -> None:
    with pytest.raises(CommandTimeout, match="sleep 10000"):
        machine.run(["sh", "-c", "sleep 10000"], timeout_s=1)
    assert machine.run(["true"]).status == 0
