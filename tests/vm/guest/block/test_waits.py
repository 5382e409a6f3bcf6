"""Times before the queue: in io.max, and between submission and a free tag."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.vm.guest.owners.groups import ROOT, Group, create_groups
from tests.vm.guest.owners.owner_sums import assert_waits_match
from tests.vm.guest.support.copies import run_opwatch
from tests.vm.guest.support.nullblk import Irq, NullBlk, create_null_blk
from tests.vm.guest.support.shell import write_attribute
from tests.vm.guest.support.sysfs import SYS_BLOCK
from tests.vm.guest.support.workload import Fio

TIMEOUT_S = 1800
CPUS = 2

DISK = NullBlk(irqmode=Irq.TIMER, completion_nsec=1_000_000, submit_queues=1)
HOOKS = ("auto", pytest.param("raw_tp", marks=pytest.mark.manual))
# Far longer than fio itself takes in an emulated guest: 250 ms.
IOPS = 4
Document = dict[str, Any]


def watch_command(disk: str, *options: str, command: list[str]) -> Document:
    """Run a command under a watch with --queue and return its summary."""
    words = ("--json", "--dev", disk, "--waf", "0", "--strict", "--queue", *options, "--", *command)
    done = run_opwatch(*words)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"schema"')]
    return next(line for line in lines if line["type"] == "summary")


def read_mean_ns(output: Path, op: str) -> float:
    """Return the mean time of a request from its submission to its completion in fio's report."""
    [job] = json.loads(output.read_text())["jobs"]
    mean: float = job[op]["lat_ns"]["mean"]
    return mean


def limit_rate(group: Group, disk: str, iops: int = IOPS) -> None:
    number = (SYS_BLOCK / disk / "dev").read_text().strip()
    write_attribute(group.folder / "io.max", f"{number} riops={iops} wiops={iops}")


def sum_before_completion(op: Document, *names: str) -> float:
    return float(sum(op[f"{name}_ns"]["mean"] for name in names))


@pytest.mark.parametrize("hooks", HOOKS)
def test_throttle_time_is_the_rest_of_the_time_that_fio_waits(hooks: str, tmp_path: Path) -> None:
    output, kept = tmp_path / "fio.json", tmp_path / "run.opw"
    job = Fio("randwrite", 17, iodepth=1, engine="psync", extra=(f"--output={output}",))
    with create_groups(["limited"]) as [group], create_null_blk(DISK) as disk:
        limit_rate(group, disk)
        command = group.build_argv(*job.build_argv(f"/dev/{disk}"))
        summary = watch_command(disk, "--hooks", hooks, "-o", str(kept), "1", command=command)
    op = summary["ops"]["write"]
    rest = read_mean_ns(output, "write") - sum_before_completion(op, "admission", "queue", "latency")
    assert op["throttle_ns"]["known"] == op["admission_ns"]["known"] == 17
    assert op["throttle_ns"]["mean"] == pytest.approx(rest, rel=0.1)
    assert 15 <= op["throttle_ns"]["waited"] <= 17
    assert op["throttle_ns"]["mean"] > 10 * op["latency_ns"]["mean"]
    assert not [sentence for sentence in summary["lacks"] if sentence.startswith("throttle")]
    again = run_opwatch("replay", "--json", str(kept))
    assert json.loads(again.stdout.splitlines()[-1])["ops"] == summary["ops"]


@pytest.mark.parametrize("hooks", HOOKS)
def test_waits_of_each_group_are_its_own_and_add_up_to_the_disk(hooks: str, tmp_path: Path) -> None:
    kept, limits = tmp_path / "run.opw", {"slow": IOPS, "slower": IOPS // 2, "free": None}
    with create_groups([*limits]) as groups, create_null_blk(DISK) as disk:
        script = ""
        for group, (name, iops) in zip(groups, limits.items(), strict=True):
            if iops:
                limit_rate(group, disk, iops)
            job = Fio("randwrite", 17, iodepth=1, engine="psync", extra=(f"--output={tmp_path / name}",))
            script += f"{shlex.join(group.build_argv(*job.build_argv(f'/dev/{disk}')))} & "
        command = ["sh", "-c", f"{script} wait"]
        words = ("--hooks", hooks, "--by", "cgroup", "-o", str(kept), "1")
        summary = watch_command(disk, *words, command=command)
    assert_waits_match(summary)
    owners = {one["name"]: one["ops"]["write"] for one in summary["owners"]["owners"]}
    for group, (name, iops) in zip(groups, limits.items(), strict=True):
        op = owners[group.name]
        later = op["mean_ns"] + op["admission_ns"]["mean"] + op["queue_ns"]["mean"]
        rest = read_mean_ns(tmp_path / name, "write") - later
        assert op["throttle_ns"]["known"] == op["admission_ns"]["known"] == op["queue_ns"]["known"] == 17
        assert (op["throttle_ns"]["waited"] >= 15) is bool(iops), op
        if iops:
            assert op["throttle_ns"]["mean"] == pytest.approx(rest, rel=0.1)
        else:
            assert op["throttle_ns"]["sum"] == 0
    again = [json.loads(line) for line in run_opwatch("replay", "--json", str(kept)).stdout.splitlines()]
    assert again[-1]["owners"] == summary["owners"]
    for line in again:
        if line["type"] != "event":
            assert_waits_match(line)


def test_requests_outside_the_limited_group_have_no_throttle_time() -> None:
    job = Fio("randread", 53, iodepth=1, engine="psync")
    with create_groups(["limited"]) as [group], create_null_blk(DISK) as disk:
        limit_rate(group, disk)
        op = watch_command(disk, command=job.build_argv(f"/dev/{disk}"))["ops"]["read"]
    assert op["throttle_ns"] == {"known": 53, "waited": 0, "mean": 0, "max": 0, "max_limit": 0}


def test_admission_time_is_the_wait_for_a_free_tag(tmp_path: Path) -> None:
    """8 threads share 2 tags of 50 ms each: a request waits about 150 ms for a tag, far longer than a busy
    machine takes to wake a thread, and less while fio starts the threads."""
    output = tmp_path / "fio.json"
    few = NullBlk(irqmode=Irq.TIMER, completion_nsec=50_000_000, submit_queues=1, hw_queue_depth=2)
    job = Fio("randread", 17, iodepth=1, jobs=8, engine="psync", extra=(f"--output={output}",))
    with create_null_blk(few) as disk:
        write_attribute(SYS_BLOCK / disk / "queue/scheduler", "none")
        op = watch_command(disk, command=job.build_argv(f"/dev/{disk}"))["ops"]["read"]
    rest = read_mean_ns(output, "read") - sum_before_completion(op, "throttle", "queue", "latency")
    assert op["admission_ns"]["known"] == op["count"] == 8 * 17
    assert op["admission_ns"]["mean"] == pytest.approx(rest, rel=0.1)
    assert op["admission_ns"]["mean"] > op["latency_ns"]["mean"]
    assert op["queue_ns"]["mean"] < op["latency_ns"]["mean"] / 4


def test_admission_time_is_the_wait_for_iocost(tmp_path: Path) -> None:
    """The model allows 4 requests per second, so that most of a request's time is its wait for a share."""
    output = tmp_path / "fio.json"
    job = Fio("randread", 17, iodepth=1, engine="psync", extra=(f"--output={output}",))
    with create_groups(["costly"]) as [group], create_null_blk(DISK) as disk:
        number = (SYS_BLOCK / disk / "dev").read_text().strip()
        rates = " ".join(f"{op}{kind}iops={IOPS}" for op in "rw" for kind in ("seq", "rand"))
        model = f"ctrl=user model=linear rbps=1000000000 wbps=1000000000 {rates}"
        write_attribute(ROOT / "io.cost.qos", f"{number} enable=1 ctrl=user min=100.00 max=100.00")
        write_attribute(ROOT / "io.cost.model", f"{number} {model}")
        op = watch_command(disk, command=group.build_argv(*job.build_argv(f"/dev/{disk}")))["ops"]["read"]
    rest = read_mean_ns(output, "read") - sum_before_completion(op, "throttle", "queue", "latency")
    assert op["admission_ns"]["known"] == op["count"] == 17
    assert op["admission_ns"]["mean"] == pytest.approx(rest, rel=0.1)
    assert op["admission_ns"]["mean"] > 10 * op["latency_ns"]["mean"]


@pytest.mark.manual
def test_parts_of_a_large_write_have_known_waits() -> None:
    with create_null_blk(DISK) as disk:
        command = ["dd", "if=/dev/zero", f"of=/dev/{disk}", "bs=16M", "count=2", "oflag=direct"]
        op = watch_command(disk, command=command)["ops"]["write"]
    assert op["count"] > 2
    assert op["admission_ns"]["known"] == op["count"]
