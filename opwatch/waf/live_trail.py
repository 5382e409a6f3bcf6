"""Write amplification of one drive during a watch, updated with each reading."""

from __future__ import annotations

from collections.abc import Callable

from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.reading import make_poll_report
from opwatch.counters.looks.sample import FirmwareSample, Refusal
from opwatch.waf.live import CurrentWaf, make_failed
from opwatch.waf.live_figure import compute_current_waf, is_stale
from opwatch.waf.polls import make_poll_from_sample
from opwatch.waf.trail import Trail

MAX_POLLS = 20_000


def _is_unanswered(sample: FirmwareSample) -> bool:
    """Return True if the drive was queried and refused every answer, so that its counters are unknown."""
    answers = sample.answers
    return bool(answers) and all(isinstance(given.answer, Refusal) for given in answers)


class LiveTrail:
    """Computes the write amplification from readings of one drive. `figure` is None before the first
    reading, and for a drive that answers but has no NAND counter."""

    def __init__(self, catalogue: Callable[[], Catalogue]) -> None:
        self._catalogue = catalogue
        self._trail = Trail()
        self._counted_on: tuple[str, ...] | None = None
        self._figure: CurrentWaf | None = None
        # The trail to compute the figure from on demand, because most figures are never displayed.
        self._due: Trail | None = None

    def add_sample(self, sample: FirmwareSample) -> None:
        """Add a reading. With other paths, or another drive under the same name, start over."""
        if self._counted_on != sample.counted_on:
            self._figure, self._due, self._trail = None, None, Trail()
            self._counted_on = sample.counted_on
        if self._trail.lost or len(self._trail.moments) > MAX_POLLS:
            self._trail = Trail()
        # A refused reading has nothing for the catalogue to decode, and may be the reason why no catalogue
        # was loaded.
        look = make_poll_report(sample, Catalogue(()) if sample.refused else self._catalogue())
        self._trail.add_poll(make_poll_from_sample(sample, look.report))
        if look.denied or is_stale(self._trail) or _is_unanswered(sample):
            # After a failed reading, show its reason instead of the previous figure.
            failures = dict.fromkeys(look.report.failures)
            why = look.denied or "; ".join(failures) or "the drive no longer reports them"
            self._figure, self._due = make_failed(f"counters cannot be read: {why}", sample.end_ns), None
        elif self._trail.nand:
            self._due = self._trail

    @property
    def live_waf(self) -> CurrentWaf | None:
        """Return the write amplification from all readings so far."""
        if self._due:
            self._figure, self._due = compute_current_waf(self._due), None
        return self._figure
