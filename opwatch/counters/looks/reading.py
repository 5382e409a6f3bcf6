"""Convert a poll of a drive to counters with their proof, the same way for live drives and files."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.evidence import Evidence
from opwatch.counters.looks.nvme import collect_nvme
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.counters.looks.smartctl import parse_output
from opwatch.counters.looks.transport import ReplayTransport
from opwatch.counters.prove.report import make_report
from opwatch.counters.reading import Report
from opwatch.errors import OpwatchError


@dataclass(frozen=True, slots=True)
class PollReport:
    """All counters of one poll.

    The report lists failures. `denied` is the reason why the drive's own counters were not read, or None.
    `evidence` is what the report is made from.
    """

    report: Report
    denied: OpwatchError | None
    evidence: Evidence


def make_poll_report(sample: FirmwareSample, catalogue: Catalogue) -> PollReport:
    """Return the counters of a poll, by the catalogue."""
    denied: OpwatchError | None = None
    try:
        evidence = _collect_evidence(sample, catalogue)
    except OpwatchError as error:
        evidence, denied = Evidence(failures=(str(error),)), error
    if evidence.asleep:
        denied = OpwatchError(f"{sample.disk} is in standby, and opwatch did not wake it")
        evidence = replace(evidence, failures=(*evidence.failures, str(denied)))
    facts = {column.name: getattr(evidence.drive, column.name) for column in fields(evidence.drive)}
    known = {name: value for name, value in facts.items() if value is not None}
    evidence = replace(evidence, drive=replace(sample.drive, **known))
    return PollReport(make_report(evidence, catalogue), denied, evidence)


def _collect_evidence(sample: FirmwareSample, catalogue: Catalogue) -> Evidence:
    if sample.refused:
        raise sample.refused.to_error()
    if sample.smartctl:
        return parse_output(sample.smartctl.status, sample.smartctl.text)
    return collect_nvme(ReplayTransport(sample.answers), catalogue, sample.nsid)
