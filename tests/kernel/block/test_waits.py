"""Times before the queue on this machine. Guest tests show that the times are right."""

from __future__ import annotations

from opwatch.host.scratch import ScratchDisk
from tests.kernel.support.watching import ATTEMPTS, parse_lines, run_opwatch


def test_admission_is_measured_and_throttle_is_measured_or_has_a_reason(disk: ScratchDisk) -> None:
    command = ["dd", "if=/dev/zero", f"of={disk.node}", "bs=4k", "count=211", "oflag=direct"]
    for _ in range(ATTEMPTS):
        done = run_opwatch("--dev", disk.node, "--json", "--queue", "--", *command)
        assert done.returncode == 0, done.stderr
        summary = parse_lines(done.stdout)[-1]
        write = summary["ops"]["write"]
        if write["count"] == 211:
            break
    assert write["admission_ns"]["known"] == write["count"] == 211
    assert 0 < write["admission_ns"]["mean"] <= write["admission_ns"]["max_limit"]
    reasons = [sentence for sentence in summary["lacks"] if sentence.startswith("throttle: ")]
    assert len(reasons) == (0 if "throttle_ns" in write else 1)


def test_no_wait_is_reported_or_missing_without_queue_time(disk: ScratchDisk) -> None:
    command = ["dd", f"if={disk.node}", "of=/dev/null", "count=1"]
    done = run_opwatch("--dev", disk.node, "--json", "--by", "process", "--", *command)
    summary = parse_lines(done.stdout)[-1]
    waits = {"throttle_ns", "admission_ns", "queue_ns"}
    assert not waits & set(summary["ops"]["read"])
    assert not any(waits & set(own) for one in summary["owners"]["owners"] for own in one["ops"].values())
    assert not [sentence for sentence in summary["lacks"] if sentence.startswith("throttle")]
