"""Readings of a drive's counters, recorded immediately: the recording of `opwatch waf`."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import TracebackType

from opwatch.clock import read_anchor
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.host.device import BlockDevice
from opwatch.recording.schema import WAF, WAF_BEGIN, WAF_END
from opwatch.recording.writing.recorder import Recorder
from opwatch.samples.entries import CountersRead
from opwatch.sinks.terminal import print_message
from opwatch.tools.runs.run_recorder import create_recording, make_header, make_note_taker, warn_of_own_disk
from opwatch.tools.runs.waf_outcome import WafQuestion


class WafRecorder:
    """Records readings inside the context. `problem` is the reason why some are missing, or None."""

    def __init__(
        self, path: Path, every_s: float, question: WafQuestion, disk: BlockDevice, command: list[str] | None
    ) -> None:
        target = create_recording(path, make_header(every_s), read_anchor())
        self._recorder = Recorder(target, print_message)
        self._taker = make_note_taker(target, self._recorder)
        self._command = command
        self._end = "interrupted"
        warn_of_own_disk(self._recorder, path, (disk.name,))
        self._recorder.add_event(WAF, question.to_json())

    @property
    def problem(self) -> str | None:
        return self._recorder.problem

    def record_poll(self, sample: FirmwareSample) -> None:
        self._recorder.add_entry(CountersRead(sample))

    def finish_recording(self, begin: int, end: int, status: int) -> None:
        """Record the two readings that enclose the work."""
        self._recorder.add_event(WAF_BEGIN, "the poll before the work", begin)
        self._recorder.add_event(WAF_END, "the poll after the work", end)
        if self._command:
            self._recorder.add_event("command ended", shlex.join(self._command), status)
        self._end = "the measurement has ended"

    def __enter__(self) -> WafRecorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._taker.close()
        self._recorder.finish_recording(f"{self._end}: {kind.__name__}" if kind else self._end)
