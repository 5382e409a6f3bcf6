"""Read fio's report and logs from a recording."""

from __future__ import annotations

from collections.abc import Iterator

from opwatch.fio.logs import FioHistogramLog, FioLog, parse_log
from opwatch.fio.report import parse_report
from opwatch.fio.results import FioReport
from opwatch.foreign import text_of
from opwatch.recording.reading.files import MOST_FILE_MEMORY, bytes_of, kept_files
from opwatch.recording.reading.reader import RecordedRun

# File names within a recording.
REPORT_NAME, LOG_FOLDER = "fio/report.json", "fio/"


def kept_report(run: RecordedRun) -> FioReport | None:
    """Return fio's report, or None if fio did not run or its report was not saved."""
    for file in kept_files(run):
        if file.name == REPORT_NAME:
            return parse_report(text_of(bytes_of(run, file)), f"{run.name}: {file.name}", MOST_FILE_MEMORY)
    return None


def kept_logs(run: RecordedRun) -> Iterator[FioLog | FioHistogramLog]:
    """Yield fio's logs in the recording. Their times are on the clock of the samples."""
    for file in kept_files(run):
        name = file.name.removeprefix(LOG_FOLDER)
        if file.name.startswith(LOG_FOLDER) and name.endswith(".log"):
            yield parse_log(bytes_of(run, file), name)
