"""Wait for a drive that frees trimmed space later, by its own count of bytes in use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from opwatch.tools.runs import trimming
from opwatch.trim.audit.audit import AuditEvidence, Held, ReadBack
from opwatch.trim.audit.ledger import is_contradicted
from opwatch.trim.stale.sentinel import ReadsAs
from opwatch.trim.stale.stale import Count
from tests.unit.support.trim_evidence import (
    make_disk_flows,
    make_evidence,
    make_extent_flow,
    make_layer,
    make_stack,
)

MIB = 1 << 20
SIZE = 1000 * MIB
FOLLOWED, IGNORED = (Count(SIZE - MIB, SIZE, after, MIB) for after in (SIZE - MIB, SIZE))


def audit_with_counts(
    monkeypatch: pytest.MonkeyPatch, count: Count, *counts: int
) -> tuple[AuditEvidence, int]:
    """Return the evidence of a trim of 900 MiB on a drive with these counts of bytes in use, one before the
    trim and the others after it, and how many were read."""
    stack = make_stack(replace(make_layer("opwatch-none", "8:0"), size_bytes=SIZE))
    left: Iterator[int] = iter(counts)
    read = []

    def read_counts(_: object) -> dict[str, int]:
        read.append(next(left, counts[-1]))
        return {"opwatch-none": read[-1]}

    monkeypatch.setattr(trimming, "_read_use_counts", read_counts)
    monkeypatch.setattr(trimming, "_read_written_bytes", lambda _: 0)
    monkeypatch.setattr(trimming, "PROVE_WAIT_S", 0.5)
    flows = [make_extent_flow("8:0", 900 * MIB), *make_disk_flows("opwatch-none", "8:0", 900 * MIB)]
    evidence = make_evidence(stack, flows, 900 * MIB)
    evidence = replace(evidence, read_back=ReadBack({ReadsAs.ZEROS: MIB}, None, (), count))
    witnesses = trimming._Witnesses(stack, is_contradicted)
    return witnesses.add_to(evidence, None), len(read)


def test_count_that_is_still_falling_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentinels were freed, but a drive that frees in its idle time had freed only half of the trim."""
    evidence, _ = audit_with_counts(monkeypatch, FOLLOWED, SIZE - MIB, 500 * MIB, 300 * MIB, 100 * MIB)
    assert evidence.in_use == {"opwatch-none": Held(SIZE - MIB, 100 * MIB)}
    assert not is_contradicted(evidence)


def test_drive_that_freed_no_sentinel_is_not_awaited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, n_read = audit_with_counts(monkeypatch, IGNORED, SIZE - MIB, SIZE - MIB)
    assert n_read == 2
    assert is_contradicted(evidence)


def test_count_that_never_falls_is_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, n_read = audit_with_counts(monkeypatch, FOLLOWED, SIZE - MIB, 500 * MIB)
    assert n_read > 3
    assert is_contradicted(evidence)
