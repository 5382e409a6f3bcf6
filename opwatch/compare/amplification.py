"""Estimate the write amplification of a whole run: counter error and variation between its parts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opwatch.compare.estimates import Estimate, compute_influences, make_estimate, make_ratio_figure
from opwatch.counters.catalogue.families import Catalogue
from opwatch.counters.looks.reading import make_poll_report
from opwatch.counters.looks.sample import FirmwareSample
from opwatch.waf.measure import NOT_THERE, Measurement
from opwatch.waf.polls import make_poll_from_sample
from opwatch.waf.trail import Trail

NOT_READ = "the drive's counters were not recorded"
COUNTERS_REPLACED = "the device that the drive's counters were compared with changed during the run"
# Few are enough, because they are long: a correlation between seconds stays within one interval.
MIN_INTERVALS = 5
# A log page that refreshes occasionally shows the state at some moment since the previous reading; assume the
# middle.
HALFWAY = 0.5


def _build_trail(looks: Sequence[FirmwareSample], catalogue: Callable[[], Catalogue]) -> Trail:
    trail = Trail()
    for look in looks:
        report = make_poll_report(look, Catalogue(()) if look.refused else catalogue())
        if not report.denied:
            trail.add_poll(make_poll_from_sample(look, report.report))
    return trail


def estimate_waf(looks: Sequence[FirmwareSample], catalogue: Callable[[], Catalogue]) -> Estimate:
    """Estimate the write amplification from the first sample to the last. An estimate without a value has a
    reason."""
    if not looks:
        return Estimate(None, reason=NOT_READ)
    if any(look.counted_on != looks[0].counted_on for look in looks):
        return Estimate(None, reason=COUNTERS_REPLACED)
    trail = _build_trail(looks, catalogue)
    if len(trail.moments) < 2:
        return Estimate(None, reason=NOT_THERE)
    measurement = Measurement(trail, 0, len(trail.moments) - 1)
    measured = measurement.make_result()
    waf, error, stretch = measured.waf, measured.error, measured.stretch
    if waf is None or error is None or stretch is None:
        return Estimate(None, reason=measured.reason)
    parts = list(measurement.iter_intervals(stretch, HALFWAY))
    nand = [part.nand_bytes for part in parts]
    host = [part.host_bytes for part in parts]
    bounds = (waf - error, waf + error)
    if not sum(host):
        return Estimate(waf, *bounds, reason="the drive's counters changed only once")
    return make_estimate(
        value=waf,
        bounds=bounds,
        figure=make_ratio_figure(nand, host),
        influences=compute_influences(nand, host),
        what="intervals between counter changes",
        least=MIN_INTERVALS,
        least_worth=0.0,
    )
