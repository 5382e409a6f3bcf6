"""Optional attribution to owners: a watch continues without owners and reports why."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from opwatch.errors import PermissionMissing, ProbeRejected
from opwatch.owners.cells import By
from opwatch.tools import backends
from opwatch.tools.backends import Attribution, attach


class _Refusing:
    """A tracer on a kernel that refuses programs with owners, or every program."""

    takes_plain = True
    lacks: Sequence[str] = ()

    def __init__(self, leaves: object, *, by: By | None, **rest: object) -> None:
        if by:
            raise ProbeRejected("programs of owners: EINVAL", "its log")
        if not self.takes_plain:
            raise PermissionMissing("it needs root")
        self.by = by


@pytest.fixture(autouse=True)
def refusing(monkeypatch: pytest.MonkeyPatch) -> type[_Refusing]:
    monkeypatch.setattr(backends, "BlockTracer", _Refusing)
    return _Refusing


def test_optional_owners_may_be_missing() -> None:
    tracer = attach("libbpf", [], owners=Attribution(By.CGROUP, is_offered=True))
    assert tracer.lacks == ("owners: programs of owners: EINVAL",)
    assert attach("libbpf", []).lacks == ()


def test_requested_owners_are_not_left_out() -> None:
    with pytest.raises(ProbeRejected):
        attach("libbpf", [], owners=Attribution(By.CGROUP))


def test_other_refusals_are_raised(monkeypatch: pytest.MonkeyPatch, refusing: type[_Refusing]) -> None:
    monkeypatch.setattr(refusing, "takes_plain", False)
    with pytest.raises(PermissionMissing):
        attach("libbpf", [], owners=Attribution(By.CGROUP, is_offered=True))
