"""fio with added options: its usual output is printed, and its results are kept."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opwatch.fio.report import parse_report
from opwatch.recording.schema import PHASE_BEGAN, PHASE_ENDED
from opwatch.tools.runs.fio_run import RecordedFio, make_recorded_fio

JOB = """\
[global]
ioengine=psync
thread
size=256k
filename=data
time_based
runtime=1100ms
[first]
rw=randwrite
bs=4k
rate_iops=53
[second]
stonewall
rw=randread
bs=4k
rate_iops=47
"""


class FakeRecorder:
    """A recorder that stores the calls."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.events: list[tuple[str, str, int]] = []

    def add_file(self, name: str, raw: bytes) -> None:
        self.files[name] = raw

    def add_event(self, kind: str, words: str, status: int | None = None, mono_ns: int | None = None) -> None:
        self.events.append((kind, words, mono_ns or 0))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not shutil.which("fio"):
        pytest.skip("fio is not installed")
    (tmp_path / "job.fio").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_fio(*words: str, capfd: pytest.CaptureFixture[str]) -> tuple[FakeRecorder, str, str]:
    """Run fio and return (kept files and events, standard output, standard error)."""
    kept: Any = FakeRecorder()
    run = RecordedFio(["fio", *words])
    try:
        run.print_missing()
        subprocess.run(run.command, check=True)
        sys.stdout.flush()
        run.record_results(kept)
    finally:
        run.close()
    out, err = capfd.readouterr()
    return kept, out, err


def test_fio_prints_its_usual_output(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept, out, err = run_fio("job.fio", capfd=capfd)
    assert err == ""
    assert out.startswith("first: (g=0)") and "Run status group 1" in out and "{" not in out
    report = parse_report(kept.files["fio/report.json"].decode())
    assert [job.name for job in report.jobs] == ["first", "second"]
    latency = report.jobs[0].operations["write"].reported_latency
    assert latency is not None and latency.bins
    assert {"fio/fio_bw.1.log", "fio/fio_clat.2.log", "fio/fio_iops.1.log"} <= set(kept.files)
    assert [(kind, words) for kind, words, _ in kept.events] == [
        *((PHASE_BEGAN, "first"), (PHASE_ENDED, "first")),
        *((PHASE_BEGAN, "second"), (PHASE_ENDED, "second")),
    ]
    moments = [mono_ns for _, _, mono_ns in kept.events]
    assert moments[0] < moments[1] and moments[0] < moments[2] < moments[3]
    assert moments[1] - moments[0] == round((report.jobs[0].threads_s or 0) * 1e9)
    assert sorted(path.name for path in folder.iterdir()) == ["data", "job.fio"]


def test_requested_json_output_is_unchanged(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept, out, _ = run_fio("--output-format=json", "job.fio", capfd=capfd)
    assert parse_report(out).jobs == parse_report(kept.files["fio/report.json"].decode()).jobs
    assert out.endswith("}\n")


def test_job_with_its_own_logs_keeps_its_logs(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "job.fio").write_text(JOB.replace("size=", "write_lat_log=mine\nsize="))
    kept, _, err = run_fio("job.fio", capfd=capfd)
    assert list(kept.files) == ["fio/report.json"] and not kept.events
    assert re.search(r"\bjob\.fio\b.*\bwrite_lat_log\b", " ".join(err.split()))
    # The log uses fio's clock, which starts with the job.
    rows = (folder / "mine_lat.1.log").read_text().splitlines()
    assert len(rows) > 30 and int(rows[-1].split(",")[0]) < 2000


def test_failed_fio_leaves_no_files_and_is_reported(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    kept: Any = FakeRecorder()
    run = RecordedFio(["fio", "missing.fio"])
    assert subprocess.run(run.command, check=False).returncode
    run.record_results(kept)
    run.close()
    assert "figures" in capfd.readouterr().err
    assert not kept.files and not kept.events


def test_other_commands_and_unchanged_fio_are_left_alone() -> None:
    assert make_recorded_fio(None, as_it_is=False, quiet_stdout=False) is None
    assert make_recorded_fio(["dd"], as_it_is=False, quiet_stdout=False) is None
    assert make_recorded_fio(["fio", "job.fio"], as_it_is=True, quiet_stdout=False) is None
