from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from opwatch.samples.observation import Observation
from opwatch.sinks.jsonl import JsonLines
from opwatch.sinks.lines import TextLines
from opwatch.sinks.terminal import COLUMNS
from opwatch.trace.abi import OPS
from opwatch.trace.account.losses import list_losses, tally_losses
from opwatch.trace.derive import derive_interval
from opwatch.trace.trust import Reading, account_losses
from tests.unit.support.samples import Op, make_sample

SECOND = 1_000_000_000
NO_DRIFT = "statistics are off"
BUSY = Op([1000, 2000, 70_000_000_000], [4096, 8192, 512], queue_ns=[10, 20, 30], statuses={7: 1, 10: 2})


def make_observation(*, final: bool = False, **ops: Op) -> Observation:
    begin, end = make_sample(0), make_sample(SECOND, **ops)
    account = account_losses(Reading(begin, None, None, NO_DRIFT), Reading(end, None, None), 0)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    interval = derive_interval(begin, end)
    losses = list_losses(tally_losses(account, 0), account, is_blind=False, is_whole=final)
    return Observation("sda", "dm-0", "requests by tp_btf", at, final, interval, account, 0, losses=losses)


def change_account(one: Observation, *, is_blind: bool = False, **changes: Any) -> Observation:  # noqa: ANN401
    """Return the observation with a changed loss account."""
    account = replace(one.trust, **changes)
    losses = list_losses(tally_losses(account, 0), account, is_blind=is_blind, is_whole=one.final)
    return replace(one, trust=account, losses=losses)


def write_document(interval: Observation) -> dict[str, Any]:
    stream = io.StringIO()
    JsonLines(stream).write_observation(interval)
    [line] = stream.getvalue().splitlines()
    document: dict[str, Any] = json.loads(line)
    return document


def test_every_class_is_present_and_idle_classes_have_no_latency() -> None:
    document = write_document(make_observation(read=BUSY))
    assert document["schema"] == "opwatch/1"
    assert (document["type"], document["device"], document["origin"]) == ("interval", "sda", "dm-0")
    assert set(document["ops"]) == set(OPS)
    idle = document["ops"]["discard"]
    assert (idle["count"], idle["bytes"], idle["errors"]) == (0, 0, 0)
    assert set(idle["latency_ns"]) >= {"mean", "p50", "p90", "p99", "p99_9", "max"}
    assert [idle["latency_ns"][key] for key in ("mean", "p50", "max")] == [None] * 3


def test_busy_class_has_every_field() -> None:
    read = write_document(make_observation(read=BUSY))["ops"]["read"]
    assert (read["count"], read["bytes"], read["errors"]) == (3, 12800, 3)
    assert read["errors_by_status"] == {"medium": 1, "I/O": 2}
    assert read["queue_ns"]["mean"] == 20
    # The maximum is exact even beyond the last slot.
    assert read["latency_ns"]["max"] == 70_000_000_000


def test_waits_are_present_only_if_measured() -> None:
    waits = {"throttle_known": 3, "throttled": 1, "throttle_sum_ns": 60, "throttle_max_ns": 60}
    read = write_document(make_observation(read=replace(BUSY, scalars=waits)))["ops"]["read"]
    assert read["throttle_ns"] == {"known": 3, "waited": 1, "mean": 20, "max": 60, "max_limit": 60}
    assert "admission_ns" not in read


def test_unknown_drift_has_a_reason() -> None:
    account = write_document(make_observation(final=True))["trust"]
    assert account["drift"] == {}
    assert account["no_drift"] == NO_DRIFT


@pytest.mark.parametrize("final", [False, True])
def test_lines_fit_their_columns_for_any_numbers(final: bool) -> None:
    huge = Op([60_000_000_000] * 3, [1 << 30] * 3, scalars={"issued": 10**12, "errors": 999, "bytes": 10**12})
    stream = io.StringIO()
    TextLines(stream).write_observation(
        make_observation(final=final, write_zeroes=huge, secure_erase=huge, read=BUSY)
    )
    text = stream.getvalue()
    assert [line for line in text.splitlines() if len(line) > COLUMNS] == []
    assert "wzeroes" in text


def test_idle_disk_is_reported() -> None:
    stream = io.StringIO()
    TextLines(stream).write_observation(make_observation())
    assert stream.getvalue().endswith("sda (of dm-0): idle\n")
    TextLines(stream).write_observation(make_observation(final=True))
    assert "no I/O" in stream.getvalue()
