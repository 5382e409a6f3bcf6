"""Read fio's report and logs from a recording."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.fio.logs import FioHistogramLog, FioLog, parse_log
from opwatch.fio.report import parse_report
from opwatch.fio.results import FioReport
from opwatch.foreign import decode_text
from opwatch.recording.reading.files import MAX_FILE_MEMORY, iterate_files, read_stored_file
from opwatch.recording.reading.reader import RecordedRun

# File names within a recording.
REPORT_NAME, LOG_FOLDER = "fio/report.json", "fio/"


def read_fio_report(run: RecordedRun) -> FioReport | None:
    """Return fio's report, or None if fio did not run or its report was not saved."""
    for file in iterate_files(run):
        if file.name == REPORT_NAME:
            return parse_report(
                decode_text(read_stored_file(run, file)), f"{run.name}: {file.name}", MAX_FILE_MEMORY
            )
    return None


def read_fio_logs(run: RecordedRun) -> Iterator[FioLog | FioHistogramLog]:
    """Yield fio's logs in the recording. Their times are on the clock of the samples."""
    for file in iterate_files(run):
        name = file.name.removeprefix(LOG_FOLDER)
        if file.name.startswith(LOG_FOLDER) and name.endswith(".log"):
            yield parse_log(read_stored_file(run, file), name)
