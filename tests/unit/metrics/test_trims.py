"""Metrics of trims."""

from __future__ import annotations

from opwatch.metrics.family import MetricSamples
from opwatch.metrics.table import STALE_BYTES, TRIM_LOST, TRIM_TIMESTAMP, TRIM_VERDICT
from opwatch.metrics.trims import TrimState, add_trim_metrics
from opwatch.trim.audit.audit import Verdict


def test_trim_has_verdict_time_bounds_and_losses() -> None:
    samples = MetricSamples()
    lost = {("dm-0", "dm-no-discard"): 4096, ("loop0", "misaligned"): 512}
    add_trim_metrics(samples, TrimState("/srv", Verdict.NOT_SENT.value, 1.7e9, (10.4, 20.6), lost))
    add_trim_metrics(samples, TrimState("/", "reaches", 1.7e9))
    assert samples.rows == {
        TRIM_VERDICT.name: [(("/srv", "not_sent"), 1), (("/", "reaches"), 1)],
        TRIM_TIMESTAMP.name: [(("/srv",), 1.7e9), (("/",), 1.7e9)],
        STALE_BYTES.name: [(("/srv", "low"), 10), (("/srv", "high"), 21)],
        TRIM_LOST.name: [(("/srv", "dm-0", "dm-no-discard"), 4096), (("/srv", "loop0", "misaligned"), 512)],
    }
