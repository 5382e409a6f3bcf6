"""Metrics of trims."""

from __future__ import annotations

from opwatch.metrics.family import MetricSamples
from opwatch.metrics.table import STALE_BYTES, TRIM_LOST, TRIM_TIMESTAMP, TRIM_VERDICT
from opwatch.metrics.trims import LostBytesCounter, TrimState, add_trim_metrics, find_lost_bytes
from opwatch.trim.audit.audit import Verdict
from opwatch.trim.stack.causes import Effect, load_causes, make_reason


def test_trim_has_verdict_time_bounds_and_losses() -> None:
    samples = MetricSamples()
    lost = {("crypt", "crypt-no-discards"): 4096, ("loop", "misaligned"): 512}
    add_trim_metrics(samples, TrimState("/srv", Verdict.NOT_SENT.value, 1.7e9, (10.4, 20.6), lost))
    add_trim_metrics(samples, TrimState("/", "reaches", 1.7e9))
    assert samples.rows == {
        TRIM_VERDICT.name: [(("/srv", "not_sent"), 1), (("/", "reaches"), 1)],
        TRIM_TIMESTAMP.name: [(("/srv",), 1.7e9), (("/",), 1.7e9)],
        STALE_BYTES.name: [(("/srv", "low"), 10), (("/srv", "high"), 21)],
        TRIM_LOST.name: [
            (("/srv", "crypt", "crypt-no-discards"), 4096),
            (("/srv", "loop", "misaligned"), 512),
        ],
    }


def find_code(effect: Effect) -> str:
    return next(cause.code for cause in load_causes().values() if cause.effect is effect)


def test_lost_bytes_are_summed_by_layer_and_cause() -> None:
    stops, shortens, harmless = (find_code(one) for one in (Effect.STOPS, Effect.SHORTENS, Effect.HARMLESS))
    reasons = [
        make_reason(shortens, "sda", "", 100),
        make_reason(shortens, "sdb", "", 50),
        make_reason(harmless, "sda", "", 7),
        make_reason(stops, "dm-0", ""),
        make_reason(stops, "dm-1", ""),
    ]
    lost = find_lost_bytes(reasons, 1 << 30)
    assert {code: count for (_, code), count in lost.items()} == {shortens: 150, stops: 1 << 30}
    unknown = find_lost_bytes(reasons, None)
    assert {code: count for (_, code), count in unknown.items()} == {shortens: 150}


def test_repeated_checks_count_new_losses_alone() -> None:
    counter, key = LostBytesCounter(), ("crypt", "crypt-no-discards")
    sums = [
        counter.add_check({key: count} if count else {}).get(key, 0)
        for count in (100, 100, 130, 20, 50, 0, 10)
    ]
    assert sums == [100, 100, 130, 130, 160, 160, 170]
