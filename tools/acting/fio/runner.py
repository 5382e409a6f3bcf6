"""Run fio: start, watch, stop, and parse its report and logs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opwatch.closing import Closable
from opwatch.errors import OpwatchError, Unsupported
from opwatch.fio.logs import FioLog, is_log_name, parse_log
from opwatch.fio.report import parse_report
from opwatch.fio.results import FioReport
from opwatch.foreign import decode_text, read_all, read_bytes, split_lines
from opwatch.host.process import die_with_parent
from opwatch.tools.acting.fio.child import MeteredChild

_STDERR_BYTES = 1 << 16
# Grace period before SIGKILL. fio ends its threads after the requests in flight.
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class FioRun:
    """Result of a run.

    `report` is None if fio was stopped before it wrote one. `cpu_s` is fio's user and system time. Times are
    monotonic. `was_stopped`: stopped by us.
    """

    report: FioReport | None
    logs: tuple[FioLog, ...]
    cpu_s: float
    begin_ns: int
    end_ns: int
    was_stopped: bool


class FioProcess(Closable):
    """Running fio process that dies with us.

    Leaves nothing but a folder, which close() removes. The caller must call result() or close().
    """

    def __init__(self, words: Sequence[str], folder: Path | None = None) -> None:
        """Start fio with the arguments `words`.

        `folder` is the parent of the log folder. Without logs no folder is created, because a kill of opwatch
        would leave the folder behind.
        """
        program = shutil.which("fio")
        if not program:
            raise Unsupported("fio is not installed; opwatch doctor names its package")
        has_logs = any("_log=" in word for word in words)
        self._folder = Path(tempfile.mkdtemp(prefix="fio-", dir=folder)) if has_logs else None
        self._report = os.memfd_create("fio-report", os.MFD_CLOEXEC)
        self._said = os.memfd_create("fio-said", os.MFD_CLOEXEC)
        self._was_stopped = False
        self.begin_ns = time.monotonic_ns()
        report = f"/proc/{os.getpid()}/fd/{self._report}"
        argv = [program, "--output-format=json+", f"--output={report}", *words]
        try:
            # A separate session keeps terminal signals away, so that we can stop fio cleanly.
            self.process = MeteredChild(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                cwd=self._folder or "/",
                start_new_session=True,
                preexec_fn=die_with_parent(os.getpid()),
            )
        except BaseException:
            self._clean_up()
            raise

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_running(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Stop fio: cleanly first, to get a report, then by SIGKILL."""
        self._was_stopped = True
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if not self.is_running():
                return
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_PATIENCE_S)
                return
        self.process.wait()

    def wait_for_result(self, timeout_s: float | None = None) -> FioRun:
        """Wait for the end and return the results. Raise OpwatchError with fio's message if it failed."""
        try:
            status = self.process.wait(timeout_s)
            end_ns = time.monotonic_ns()
            if status and not self._was_stopped:
                raise OpwatchError(self._format_failure(status))
            report = self._read_report()
            if report and not self._was_stopped:
                _require_success(report)
            logs = self._read_logs()
            cpu_s = self.process.cpu_s
            return FioRun(report, logs, cpu_s, self.begin_ns, end_ns, self._was_stopped)
        except subprocess.TimeoutExpired as error:
            raise OpwatchError(f"fio did not end within {timeout_s:g} s") from error
        finally:
            self.close()

    def close(self) -> None:
        """Kill fio if it still runs, and clean up."""
        if self._report < 0:
            return
        if self.is_running():
            self.process.kill()
        self.process.wait()
        self._clean_up()

    def _clean_up(self) -> None:
        for descriptor in (self._report, self._said):
            os.close(descriptor)
        self._report = self._said = -1
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _format_failure(self, status: int) -> str:
        said = [
            line
            for line in split_lines(decode_text(_read_content(self._said, _STDERR_BYTES)))
            if line.strip()
        ]
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return f"fio failed ({how}): {said[-1] if said else 'no message'}"

    def _read_report(self) -> FioReport | None:
        text = decode_text(_read_content(self._report))
        if not text.strip() and self._was_stopped:
            return None
        return parse_report(text)

    def _read_logs(self) -> tuple[FioLog, ...]:
        logs = [
            parse_log(read_bytes(path), path.name)
            for path in (sorted(self._folder.iterdir()) if self._folder else ())
            if is_log_name(path.name)
        ]
        return tuple(log for log in logs if isinstance(log, FioLog))


def _require_success(report: FioReport) -> None:
    """Raise OpwatchError if any job failed. fio's exit status is 0 if another job succeeded."""
    for job in report.jobs:
        if job.error:
            raise OpwatchError(f"fio's {job.name} failed: {os.strerror(job.error)}")


def _read_content(descriptor: int, most: int | None = None) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as file:
        return read_all(file, "fio's report") if most is None else file.read(most) or b""
