"""A run with discards and write amplification prints the same when replayed: lines and JSON, byte for byte.

OPWATCH_REPLAY_SECONDS makes the run longer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.kernel.support.drives import create_drive
from tests.kernel.support.watching import run_opwatch
from tests.requirements import require_drive

SECONDS = int(os.environ.get("OPWATCH_REPLAY_SECONDS", "8"))
INTERVAL_S = 0.5
# All pages with a NAND write counter: opwatch has a figure while any of them can be read.
FAILING = ("log-fail=22", "log-fail=c0", "log-fail=09")

LOAD = """
import subprocess, sys
from tests.kernel.support.load import discards
node, seconds = sys.argv[1], sys.argv[2]
fio = subprocess.Popen(["fio", "--name=x", "--filename=" + node, "--rw=randrw", "--bs=16k", "--size=48m",
    "--time_based", "--runtime=" + seconds, "--rate=20m,20m", "--norandommap", "--direct=1",
    "--ioengine=libaio", "--iodepth=4", "--output=/dev/null"])
discards(node, 7)
sys.exit(fio.wait())
"""


@pytest.fixture(autouse=True)
def _drive() -> None:
    require_drive()


def make_record_arguments(device: str, path: Path, *form: str) -> list[str]:
    load = [sys.executable, "-c", LOAD, device, str(SECONDS)]
    watch = ["--dev", device, *form, "--discards", "--waf", "0.5", "-o", str(path), str(INTERVAL_S)]
    return [*watch, "--", *load]


def record_run(device: str, path: Path, form: str) -> subprocess.CompletedProcess[str]:
    return run_opwatch(*make_record_arguments(device, path, form), timeout=60 + 2 * SECONDS)


def replay_recording(path: Path, *form: str) -> str:
    done = run_opwatch("replay", *form, str(path))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lines_are_the_same_from_a_recording(tmp_path: Path) -> None:
    with create_drive() as one:
        done = record_run(one.device, tmp_path / "run.opw", "--plain")
    assert done.returncode == 0, done.stderr
    assert replay_recording(tmp_path / "run.opw", "--plain") == done.stdout
    assert len(done.stdout.splitlines()) >= SECONDS / INTERVAL_S


def test_json_is_the_same_from_a_recording(tmp_path: Path) -> None:
    with create_drive() as one:
        done = record_run(one.device, tmp_path / "run.opw", "--json")
    assert done.returncode == 0, done.stderr
    assert replay_recording(tmp_path / "run.opw", "--json") == done.stdout
    # The compared output has content: reads, writes, discards with their sender, amplification.
    documents = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = Counter(document["type"] for document in documents)
    assert kinds["interval"] >= SECONDS / INTERVAL_S - 2 and kinds["summary"] == 1
    summary = documents[-1]
    assert min(summary["ops"][op]["count"] for op in ("read", "write", "discard")) > 0
    assert [sender["count"] for sender in summary["discards"]["senders"]] == [7]
    assert summary["waf"]["waf"] is not None, summary["waf"]
    # Intervals get new figures as more samples arrive.
    figures = [document["waf"]["end_mono_ns"] for document in documents if document["waf"]]
    assert len(set(figures)) >= SECONDS / 2


def test_replay_is_the_same_when_the_drive_starts_to_refuse(tmp_path: Path) -> None:
    printed, refusing = list[str](), False
    argv = [sys.executable, "-m", "opwatch"]
    with create_drive() as one:
        argv += make_record_arguments(one.device, tmp_path / "run.opw", "--json")
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout
            for line in run.stdout:
                # A sample has been taken; from now on the drive refuses.
                if json.loads(line).get("waf") and not refusing:
                    one.inject_faults(*FAILING)
                    refusing = True
                printed.append(line)
    assert run.returncode == 0
    assert replay_recording(tmp_path / "run.opw", "--json") == "".join(printed)
    documents = [json.loads(line) for line in printed]
    reasons = {document["waf"]["reason"] for document in documents if document["waf"]}
    # Earlier, there was a figure or none yet.
    assert len(reasons) > 1, reasons
    assert documents[-1]["waf"]["reason"].startswith("counters cannot be read: ")
