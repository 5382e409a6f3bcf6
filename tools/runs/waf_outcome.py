"""A measurement of write amplification to show, from a live drive or from a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from opwatch.codec import decode, encode
from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.reading import make_poll_report
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.counters.reading import DriveFacts, Report
from opwatch.errors import BadInput, NotEnoughData, OpwatchError, Unsupported
from opwatch.foreign import parse_json
from opwatch.recording.reading.reader import RecordedRun
from opwatch.recording.schema import WAF, WAF_BEGIN, WAF_END, format_json
from opwatch.samples.entries import CountersRead
from opwatch.sinks.terminal import open_stdout
from opwatch.sinks.waf import Outcome, build_waf_document, format_waf
from opwatch.waf.measure import MeasuredWaf, Measurement
from opwatch.waf.polls import make_poll_from_sample
from opwatch.waf.trail import Trail


@dataclass(frozen=True, slots=True)
class WafQuestion:
    """The user's request: the named device, the maximum page age if it was given, the accepted error, and
    whether a command did the work."""

    origin: str
    refresh_ns: int | None
    target: float
    with_command: bool

    def to_json(self) -> str:
        """Return the question in the form that a recording stores."""
        return format_json(encode(self))


@dataclass(frozen=True, slots=True)
class WafRun:
    """Readings of a drive and their result. `latest` is the last report, `denied` the reason why it lacks the
    drive's own counters."""

    disk: str
    question: WafQuestion
    trail: Trail
    latest: Report | None
    denied: OpwatchError | None
    measured: MeasuredWaf

    def _explain_missing_nand(self) -> str:
        reading = self.latest.readings["nand_written"] if self.latest else None
        return f"NAND writes: {reading.reason if reading else 'not read'}"

    def make_outcome(self) -> Outcome:
        origin, latest = self.question.origin, self.latest
        notes = [] if self.trail.nand or self.denied else [self._explain_missing_nand()]
        if origin != self.disk:
            notes.append(f"the firmware counts for all of {self.disk}, not for {origin} alone")
        failures: Sequence[str] = latest.failures if latest else ()
        return Outcome(
            device=self.disk,
            origin=origin,
            drive=latest.drive if latest else DriveFacts(name=self.disk),
            measured=self.measured,
            parts=_sum_parts(self.trail),
            failures=failures,
            notes=notes,
            refresh_given=self.question.refresh_ns is not None,
            with_command=self.question.with_command,
        )

    def explain_failure(self) -> OpwatchError:
        """Return the error for a missing number."""
        if not self.trail.nand:
            return self.denied or Unsupported(f"{self.disk}: {self._explain_missing_nand()}")
        return NotEnoughData(f"{self.disk}: {self.measured.reason}")


def _sum_parts(trail: Trail) -> dict[str, int]:
    """Return bytes written per device, from the first poll to the last."""
    first, last = (trail.first, trail.last)
    if not first or not last:
        return {}
    return {name: n - first.parts[name] for name, n in last.parts.items() if name in first.parts}


def show_waf(run: WafRun, *, as_json: bool, status: int = 0) -> None:
    """Print a measurement. If it has no number and the command succeeded, raise the reason, which is then
    printed only once."""
    outcome = run.make_outcome()
    error = run.explain_failure() if not status and outcome.measured.waf is None else None
    if as_json:
        open_stdout().write_json(build_waf_document(outcome), indent=2)
    else:
        failures = [failure for failure in outcome.failures if failure != str(error)]
        open_stdout().write_lines(format_waf(replace(outcome, failures=failures)))
    if error:
        raise error


def is_waf_recording(run: RecordedRun) -> bool:
    """Return whether `opwatch waf` made the recording, which then has readings of a single drive and no
    disks."""
    return any(event.kind == WAF for event in run.events)


def read_waf(run: RecordedRun, catalogue: Catalogue) -> WafRun:
    """Return the measurement as it was live. A killed recorder stored no end, so the last reading is used."""
    question = _read_question(run)
    trail, latest, denied, disk = Trail(), None, None, ""
    for sample in _read_samples(run):
        look = make_poll_report(sample, catalogue)
        latest, denied, disk = look.report, look.denied, sample.disk
        trail.add_poll(make_poll_from_sample(sample, look.report))
    if not trail.moments:
        raise NotEnoughData(f"{run.name}: it ended before the first poll of the drive")
    last = len(trail.moments) - 1
    begin, end = _find_reading_index(run, WAF_BEGIN, last, 0), _find_reading_index(run, WAF_END, last, last)
    measurement = Measurement(
        trail, begin, max(end, begin), refresh_ns=question.refresh_ns, target=question.target
    )
    return WafRun(disk, question, trail, latest, denied, measurement.make_result())


def _read_samples(run: RecordedRun) -> Iterator[FirmwareSample]:
    for entry in run.iter_entries():
        if not isinstance(entry, CountersRead):
            raise BadInput(
                f"{run.name}: unexpected entry {type(entry).__name__} in a recording of opwatch waf"
            )
        yield entry.sample


def _read_question(run: RecordedRun) -> WafQuestion:
    where = f"{run.name}: table events, {WAF}"
    words = next(event.words for event in run.events if event.kind == WAF)
    return decode(WafQuestion, parse_json(words, where), where)


def _find_reading_index(run: RecordedRun, kind: str, most: int, default: int) -> int:
    """Return the index of a reading, stored as the status of an event of this kind."""
    looks = [event.status for event in run.events if event.kind == kind]
    if not looks:
        return default
    look = looks[-1]
    if look is None or not 0 <= look <= most:
        raise BadInput(f"{run.name}: table events, {kind}: there is no poll {look}")
    return look
