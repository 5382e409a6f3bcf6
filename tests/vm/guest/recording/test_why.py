"""`opwatch why` names what held requests back before the device: io.max and iocost, from their settings."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.vm.guest.owners.groups import ROOT, Group, create_groups
from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK

TIMEOUT_S = 600
CPUS = 2

DISK = NullBlk(irqmode=Irq.TIMER, completion_nsec=1_000_000, submit_queues=1)
SECONDS, USUAL_S, BURST_S = 42, 14, 8
# Requests per second: of the load, and during a burst.
LOAD, LIMITED = 20, 4
WITH_WAITS = ("--queue", "--by", "cgroup")
# A model of a disk whose requests all cost the same.
MODEL = (
    "ctrl=user model=linear rbps=1000000000 wbps=1000000000 "
    "rseqiops={0} rrandiops={0} wseqiops={0} wrandiops={0}"
)


@dataclass(frozen=True)
class Limits:
    """A file that limits requests, and what is written to it during bursts and otherwise."""

    file: Path
    slow: str
    usual: str

    def format_command(self, text: str) -> str:
        return f"echo {shlex.quote(text)} >{self.file}"


def explain_bursts(path: Path, group: Group, disk: str, limits: Limits, *options: str) -> dict[str, Any]:
    """Return the answer for a run in which a group's requests are limited twice."""
    load = (
        *("fio", "--name=load", f"--filename=/dev/{disk}", "--rw=randread", "--bs=4k", "--direct=1"),
        *("--ioengine=psync", f"--rate_iops={LOAD}", "--time_based", f"--runtime={SECONDS}"),
    )
    burst = f"{limits.format_command(limits.slow)}; sleep {BURST_S}; {limits.format_command(limits.usual)}"
    # The recorder starts the command once it counts, however long that takes in an emulated guest.
    script = (
        f"{shlex.join(group.build_argv(*load))} & sleep {USUAL_S}; {burst}; sleep {BURST_S}; {burst}; wait"
    )
    words = ("record", "-q", "-o", str(path), "--dev", disk, *options, "--", "sh", "-c", script)
    recorded = run_opwatch(*words)
    assert recorded.returncode == 0, recorded.stderr
    done = run_opwatch("why", str(path), "--json")
    assert done.returncode in (0, 6), done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def read_number(disk: str) -> str:
    return (SYS_BLOCK / disk / "dev").read_text().strip()


def limit_rate(group: Group, disk: str, riops: int) -> Limits:
    number = read_number(disk)
    return Limits(group.folder / "io.max", f"{number} riops={riops}", f"{number} riops=max")


def test_limit_of_a_group_is_the_cause_of_its_waits(tmp_path: Path) -> None:
    with create_groups(["limited"]) as [group], create_null_blk(DISK) as disk:
        limits = limit_rate(group, disk, LIMITED)
        [slow] = explain_bursts(tmp_path / "run.opw", group, disk, limits, *WITH_WAITS)["slow"]
    assert slow["layers"]["throttle"] > 0.9
    [cause] = slow["causes"]
    assert cause["names"] == ["io.max"]
    assert cause["share"] > 0.9
    assert f"{group.name} has io.max riops={LIMITED}" in cause["found"][0]["evidence"]


@pytest.mark.manual
def test_iocost_is_the_cause_of_waits_before_allocation(tmp_path: Path) -> None:
    with create_groups(["costly"]) as [group], create_null_blk(DISK) as disk:
        number = read_number(disk)
        slow, usual = (f"{number} {MODEL.format(rate)}" for rate in (LIMITED, 100_000))
        limits = Limits(ROOT / "io.cost.model", slow, usual)
        write_attribute(SYS_BLOCK / disk / "queue/scheduler", "none")
        write_attribute(limits.file, usual)
        write_attribute(ROOT / "io.cost.qos", f"{number} enable=1 ctrl=user min=100.00 max=100.00")
        [found] = explain_bursts(tmp_path / "run.opw", group, disk, limits, *WITH_WAITS)["slow"]
    assert found["layers"]["admission"] > 0.9
    [cause] = found["causes"]
    assert cause["names"] == ["iocost"]
    assert "enable=1" in cause["found"][0]["evidence"]


@pytest.mark.manual
def test_waits_that_were_not_measured_are_before_the_block_layer(tmp_path: Path) -> None:
    """Without --queue, the waits in io.max are known from the time that tasks wait for I/O only."""
    with create_groups(["unseen"]) as [group], create_null_blk(DISK) as disk:
        answer = explain_bursts(tmp_path / "run.opw", group, disk, limit_rate(group, disk, 2))
    assert any(f"{group.name} has io.max riops=2, and the wait" in note for note in answer["notes"])
    if not Path("/proc/pressure/io").exists():
        pytest.skip("the kernel has no pressure totals")
    [before] = answer["before"]
    assert before["where"] == "before the block layer"
    assert 2 <= before["seconds"] <= 2 * BURST_S + 10
