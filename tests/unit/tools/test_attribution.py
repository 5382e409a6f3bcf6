"""Optional attribution to owners: a watch continues without owners and reports why."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from opwatch.errors import PermissionMissing, ProbeRejected
from opwatch.owners.cells import OwnerGrouping
from opwatch.tools.runs import backends
from opwatch.tools.runs.backends import Attribution, attach_tracer


class _RefusingTracer:
    """A tracer on a kernel that refuses programs with owners, or every program."""

    takes_plain = True
    lacks: Sequence[str] = ()

    def __init__(self, leaves: object, *, by: OwnerGrouping | None, **rest: object) -> None:
        if by:
            raise ProbeRejected("EINVAL", "its log")
        if not self.takes_plain:
            raise PermissionMissing("it needs root")
        self.by = by


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> type[_RefusingTracer]:
    monkeypatch.setattr(backends, "BlockTracer", _RefusingTracer)
    return _RefusingTracer


def test_optional_owners_may_be_missing() -> None:
    tracer = attach_tracer("libbpf", [], owners=Attribution(OwnerGrouping.CGROUP, is_offered=True))
    assert tracer.lacks == ("owners: EINVAL",)
    assert attach_tracer("libbpf", []).lacks == ()


def test_requested_owners_are_not_left_out() -> None:
    with pytest.raises(ProbeRejected):
        attach_tracer("libbpf", [], owners=Attribution(OwnerGrouping.CGROUP))


def test_other_refusals_are_raised(monkeypatch: pytest.MonkeyPatch, refusing: type[_RefusingTracer]) -> None:
    monkeypatch.setattr(refusing, "takes_plain", False)
    with pytest.raises(PermissionMissing):
        attach_tracer("libbpf", [], owners=Attribution(OwnerGrouping.CGROUP, is_offered=True))
