"""fio after `--` in a recorded run: adds options to the command, and records the output."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from opwatch.errors import BadInput
from opwatch.fio.command import LOGS, FioPlan, is_fio, plan_command
from opwatch.fio.comparison import compare_with_fio
from opwatch.fio.logs import FioHistogramLog, FioLog, parse_log
from opwatch.fio.phases import find_job_phases
from opwatch.fio.recorded import LOG_FOLDER, REPORT_NAME
from opwatch.fio.report import extract_json, parse_report, remove_json
from opwatch.fio.results import FioReport
from opwatch.foreign import decode_text, read_bytes
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import PHASE_BEGAN, PHASE_ENDED
from opwatch.recording.writing.recorder import Recorder
from opwatch.sinks.fio.comparison import build_row_document, format_rows
from opwatch.sinks.terminal import open_stdout, print_message
from opwatch.tools.acting.fio.options import has_option

_CLOCK_OPTION = "log_alternate_epoch_clock_id"
# A job file has some KiB, and a report with bins some 10 KiB per job.
_MAX_JOB_FILE, _MAX_REPORT, _MAX_LOGS = 1 << 20, 16 << 20, 32 << 20


def make_recorded_fio(command: list[str] | None, *, as_it_is: bool, quiet_stdout: bool) -> RecordedFio | None:
    """Return the fio run of a command, or None for another command or if fio must stay unchanged."""
    if not command or not is_fio(command) or as_it_is:
        return None
    return RecordedFio(command, quiet_stdout=quiet_stdout)


class RecordedFio:
    """A recorded run of fio, from construction to close(). `command` replaces the user's command."""

    def __init__(self, command: list[str], *, quiet_stdout: bool = False) -> None:
        self._quiet_stdout = quiet_stdout
        self._folder = Path(tempfile.mkdtemp(prefix="opwatch-fio-"))
        try:
            has_clock = has_option(_CLOCK_OPTION, command[0])
            self._plan: FioPlan = plan_command(command, self._folder, _read_file_start, has_clock=has_clock)
        except BaseException:
            self.close()
            raise
        self.command = list(self._plan.argv)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def print_missing(self) -> None:
        """Print which fio results will be missing from the recording, and why."""
        if self._plan.no_report:
            print_message(f"fio's own figures are not kept: {self._plan.no_report}")
        if self._plan.no_logs:
            print_message(f"fio's logs are not kept, and its jobs do not become phases: {self._plan.no_logs}")

    def record_results(self, recorder: Recorder) -> None:
        """Pass on fio's output to the user after fio's end, and record report, logs and phases."""
        report = self._keep_report(recorder)
        logs = list(self._keep_logs(recorder))
        if not report or self._plan.no_logs:
            return
        phases, why = find_job_phases(report, logs)
        for phase in phases:
            recorder.add_event(PHASE_BEGAN, phase.name, mono_ns=phase.begin_ns)
            recorder.add_event(PHASE_ENDED, phase.name, mono_ns=phase.end_ns)
        if why:
            print_message(f"not all of fio's jobs become phases: {why}")

    def _keep_report(self, recorder: Recorder) -> FioReport | None:
        path = self._plan.report
        if not path:
            return None
        try:
            raw = read_bytes(path, _MAX_REPORT)
        except (OSError, BadInput) as error:
            print_message(f"fio's own figures are not kept: {error}")
            return None
        text = decode_text(raw)
        try:
            if self._plan.is_ours:
                _print_unchanged(
                    raw if self._is_json_requested() else _strip_report(text), quiet_stdout=self._quiet_stdout
                )
            report = parse_report(text)
            recorder.add_file(REPORT_NAME, extract_json(text).encode())
        except BadInput as error:
            print_message(f"fio's own figures are not kept: {error}")
            return None
        return report

    def _is_json_requested(self) -> bool:
        """Return whether the user's command asked fio for JSON."""
        return not any(word.startswith("--output-format=normal,json+") for word in self._plan.argv[1:3])

    def _keep_logs(self, recorder: Recorder) -> Iterator[FioLog]:
        size = 0
        for path in sorted(self._folder.glob(f"{LOGS}_*.log")):
            try:
                raw = read_bytes(path, _MAX_LOGS)
                size += len(raw)
                if size > _MAX_LOGS:
                    raise BadInput(f"fio's logs have more than {_MAX_LOGS} bytes")
                log = parse_log(raw, path.name)
            except (OSError, BadInput) as error:
                print_message(f"not all of fio's logs are kept: {error}")
                return
            if raw:
                recorder.add_file(f"{LOG_FOLDER}{path.name}", raw)
            if not isinstance(log, FioHistogramLog):
                yield log


def _strip_report(text: str) -> bytes:
    """Return fio's output without the JSON report, or all output without a report."""
    with contextlib.suppress(BadInput):
        return remove_json(text).encode()
    return text.encode()


def _print_unchanged(raw: bytes, *, quiet_stdout: bool) -> None:
    """Print fio's own output unchanged: it is the command's output, not ours."""
    stream = sys.stderr if quiet_stdout else sys.stdout
    stream.flush()
    view = memoryview(raw)
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(stream.fileno(), view) :]


def _read_file_start(name: str) -> bytes | None:
    try:
        return read_bytes(Path(name), _MAX_JOB_FILE)
    except (OSError, BadInput, ValueError):
        return None


def show_fio(run: RecordedRun, print_lines: Callable[[Iterable[str]], None], *, as_json: bool) -> None:
    """Show fio's own latencies beside the disks' latencies, if fio ran in the recording."""
    rows = compare_with_fio(run)
    if as_json:
        for row in rows:
            open_stdout().write_json(build_row_document(row))
    elif rows:
        print_lines(format_rows(rows))
