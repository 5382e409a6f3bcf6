"""Log page 81h: objections to a sanitize, its progress, and its failures."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.counters.decode.pages import BadPage
from opwatch.counters.decode.sanitize_log import (
    BLOCK_ERASE,
    CRYPTO_ERASE,
    LENGTH,
    SanitizeLog,
    SanitizeState,
    decode_sanitize_log,
)
from opwatch.errors import OpwatchError
from opwatch.sweep.namespace.sanitize import (
    SanitizeOffer,
    choose_sanitize_action,
    find_sanitize_failure,
    format_sanitize_kind,
    format_sanitize_progress,
    list_sanitize_objections,
)
from opwatch.tools.acting.namespaces import sanitizing
from opwatch.tools.acting.namespaces.controller import HeldController

FIXTURES = Path(__file__).parents[3] / "fixtures"
RESUME = "opwatch sweep resume X"


def read_page(name: str, kind: str = "good") -> bytes:
    """Return a fixture's page, padded with zeros."""
    return bytes.fromhex((FIXTURES / kind / "guard" / f"sanitize-{name}.hex").read_text()).ljust(
        LENGTH, b"\0"
    )


def read_log(name: str) -> SanitizeLog:
    return decode_sanitize_log(read_page(name))


DRIVE = Controller(can_sanitize=True, erases_blocks=True, erases_keys=True, most_namespaces=1)
OFFER = SanitizeOffer(DRIVE, Namespace(lba_bytes=512), 1, (1,), read_log("never"))


def test_sanitize_log_has_progress_and_last_result() -> None:
    assert read_log("never") == SanitizeLog(SanitizeState.NEVER, None, 0, {BLOCK_ERASE: 180, CRYPTO_ERASE: 2})
    under_way = read_log("under-way")
    assert (under_way.state, under_way.progress_ratio) == (SanitizeState.UNDER_WAY, 0.25)
    assert (under_way.action, under_way.seconds[BLOCK_ERASE]) == (BLOCK_ERASE, 5400)
    # Global Data Erased is a flag next to the state, not a state.
    assert (read_log("done").state, read_log("done").action) == (SanitizeState.DONE, CRYPTO_ERASE)
    assert (read_log("failed").state, read_log("failed").progress_ratio) == (SanitizeState.FAILED, None)


@pytest.mark.parametrize(("name", "why"), [("state", "state 6"), ("unfilled", "zeroes")])
def test_a_page_that_is_damaged_or_unknown_is_refused(name: str, why: str) -> None:
    with pytest.raises(BadPage, match=why):
        decode_sanitize_log(read_page(name, "bad"))
    with pytest.raises(BadPage, match="511 bytes"):
        decode_sanitize_log(read_page("never")[:511])


@given(st.binary(max_size=600))
def test_any_page_is_decoded_or_refused(raw: bytes) -> None:
    try:
        read = decode_sanitize_log(raw)
    except BadPage:
        assert len(raw) < LENGTH or not any(raw[:LENGTH]) or raw[2] & 7 > 4 or set(raw[:LENGTH]) == {255}
    else:
        assert format_sanitize_progress(read)


@pytest.mark.parametrize(
    ("offer", "why"),
    [
        (replace(OFFER, controller=Controller(), log=None), "(SANICAP is 0)"),
        (
            replace(OFFER, controller=replace(DRIVE, erases_blocks=False, erases_keys=False)),
            "neither",
        ),
        (replace(OFFER, controller=replace(DRIVE, has_peers=True)), "(CMIC)"),
        (replace(OFFER, namespace=Namespace(is_shared=True)), "(NMIC)"),
        (replace(OFFER, namespaces=(1, 3)), ": 1, 3"),
        (replace(OFFER, namespaces=()), ": none"),
        (replace(OFFER, log=read_log("under-way")), "already"),
        (
            replace(OFFER, log=read_log("failed")),
            " nvme sanitize, ",
        ),
    ],
)
def test_objections_to_a_sanitize_are_reported(offer: SanitizeOffer, why: str) -> None:
    [reason] = list_sanitize_objections(offer)
    assert why in reason


def test_block_erase_is_preferred() -> None:
    assert (
        list_sanitize_objections(OFFER)
        == list_sanitize_objections(replace(OFFER, log=read_log("done")))
        == []
    )
    assert choose_sanitize_action(DRIVE) == BLOCK_ERASE
    assert choose_sanitize_action(replace(DRIVE, erases_blocks=False)) == CRYPTO_ERASE
    assert choose_sanitize_action(Controller(can_sanitize=True)) == 0


def test_sanitize_progress_is_reported() -> None:
    progress = format_sanitize_progress(read_log("under-way"))
    assert format_sanitize_kind(BLOCK_ERASE) in progress
    assert re.findall(r"[\d.]+ \S+", progress) == ["25.0 %,", "1.5 h"]
    without = replace(read_log("under-way"), seconds={})
    assert re.findall(r"[\d.]+ \S+", format_sanitize_progress(without)) == ["25.0 %"]


@pytest.mark.parametrize(
    ("name", "action", "why"),
    [
        ("done", CRYPTO_ERASE, None),
        ("done", BLOCK_ERASE, "(crypto erase) is not the one that was started (block erase)"),
        ("never", BLOCK_ERASE, "never"),
        (
            "failed",
            BLOCK_ERASE,
            "nvme sanitize /dev/nvme7 --sanact=2, then nvme sanitize-log /dev/nvme7 until",
        ),
    ],
)
def test_only_the_requested_action_counts_as_success(name: str, action: int, why: str | None) -> None:
    failure = find_sanitize_failure(read_log(name), action, "nvme7", RESUME)
    assert failure is None if why is None else why in (failure or "")


def make_controller(*answers: SanitizeLog | Exception) -> HeldController:
    """A controller that returns these log pages in turn."""
    controller = SimpleNamespace(
        name="nvme7", identified=DRIVE, fileno=lambda: 5, read_sanitize_log=Mock(side_effect=answers)
    )
    return cast("HeldController", controller)


def test_sanitize_is_awaited_across_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, shown = Mock(), Mock()
    monkeypatch.setattr(sanitizing, "sanitize_drive", sent)
    monkeypatch.setattr(sanitizing, "_POLL_S", 0)
    done = replace(read_log("done"), action=BLOCK_ERASE)
    controller = make_controller(
        read_log("under-way"), OpwatchError("no answer"), read_log("under-way"), done
    )
    sanitizing.run_sanitize(controller, shown, RESUME)
    sent.assert_called_once_with(5, BLOCK_ERASE)
    assert [call.args[0] for call in shown.call_args_list] == [
        format_sanitize_progress(read_log("under-way"))
    ] * 2


def test_unresponsive_drive_is_reported_and_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sanitizing, "sanitize_drive", Mock())
    monkeypatch.setattr(sanitizing, "_POLL_S", 0)
    monkeypatch.setattr(sanitizing, "_PATIENCE_S", -1)
    controller = make_controller(OpwatchError("log page 81h: no such device"))
    with pytest.raises(OpwatchError, match=r"log page 81h: no such device; .* nvme sanitize-log"):
        sanitizing.run_sanitize(controller, Mock(), RESUME)
    with pytest.raises(OpwatchError, match=r"failed\. .*: nvme sanitize /dev/"):
        sanitizing.run_sanitize(make_controller(read_log("failed")), Mock(), RESUME)
