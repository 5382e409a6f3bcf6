"""Write amplification of one drive while it is watched: look after look, and what they say by now."""

from __future__ import annotations

from collections.abc import Callable

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.reading import report_of
from opwatch.counters.looks.sample import FirmwareSample, Refusal
from opwatch.waf.live import Live, failed
from opwatch.waf.live_figure import live, stale
from opwatch.waf.polls import poll_of_look
from opwatch.waf.trail import Trail

MOST_POLLS = 20_000


def _is_mute(sample: FirmwareSample) -> bool:
    """Whether the drive was asked and answered nothing at all: whether it has counters nobody can know."""
    answers = sample.answers
    return bool(answers) and all(isinstance(given.answer, Refusal) for given in answers)


class LiveTrail:
    """Makes a figure of looks at one drive. `figure` is None before the first look, and of a drive that
    answers and counts no NAND writes."""

    def __init__(self, catalogue: Callable[[], Catalogue]) -> None:
        self._catalogue = catalogue
        self._trail = Trail()
        self._counted_on: tuple[str, ...] | None = None
        self._figure: Live | None = None
        # What the figure is to be worked out from when it is wanted: of most looks nobody sees anything.
        self._due: Trail | None = None

    def add(self, sample: FirmwareSample) -> None:
        """One more look. With other paths, or another drive under the same name, all begins anew."""
        if self._counted_on != sample.counted_on:
            self._figure, self._due, self._trail = None, None, Trail()
            self._counted_on = sample.counted_on
        if self._trail.lost or len(self._trail.moments) > MOST_POLLS:
            self._trail = Trail()
        # What was not read says nothing that a catalogue could explain, and may be why there is none.
        look = report_of(sample, Catalogue(()) if sample.refused else self._catalogue())
        self._trail.add(poll_of_look(sample, look.report))
        if look.denied or stale(self._trail) or _is_mute(sample):
            # One that failed has its reason, and not what the look before said.
            failures = dict.fromkeys(look.report.failures)
            why = look.denied or "; ".join(failures) or "the drive tells them no more"
            self._figure, self._due = failed(f"counters are not read: {why}", sample.end_ns), None
        elif self._trail.nand:
            self._due = self._trail

    @property
    def figure(self) -> Live | None:
        """What all looks until now say."""
        if self._due:
            self._figure, self._due = live(self._due), None
        return self._figure
