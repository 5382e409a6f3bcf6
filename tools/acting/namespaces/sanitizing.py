"""Sanitize a drive and wait for the end.

A sanitize cannot be stopped: the drive continues over resets and without us.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from opwatch.counters.decode.sanitize_log import SanitizeLog, SanitizeState
from opwatch.errors import OpwatchError
from opwatch.guard.identity import DiskIdentity
from opwatch.host.device import BlockDevice, Devices
from opwatch.sweep.namespace.sanitize import (
    SanitizeOffer,
    choose_sanitize_action,
    find_sanitize_failure,
    format_sanitize_kind,
    format_sanitize_progress,
)
from opwatch.tools.acting.namespaces.commands import sanitize_drive
from opwatch.tools.acting.namespaces.controller import HeldController, find_controller, find_drive_controller

_POLL_S = 0.5
# Time that a controller may need to answer again after a reset.
_PATIENCE_S = 60.0


def find_sanitize_offer(disk: BlockDevice) -> SanitizeOffer:
    """Return the sanitize support of a disk's drive. Changes nothing."""
    with HeldController(find_controller(Devices(), disk)) as controller:
        return controller.read_sanitize_offer(disk)


def run_sanitize(controller: HeldController, show: Callable[[str], None], resume_words: str) -> None:
    """Sanitize the entire drive with its best method, and return on success.

    Signals are handled by the caller afterwards.
    """
    action = choose_sanitize_action(controller.identified)
    sanitize_drive(controller.fileno(), action)
    _wait_for_end(controller, action, show, resume_words)


def wait_for_sanitize(identity: DiskIdentity, show: Callable[[str], None], resume_words: str) -> None:
    """Wait until a drive is no longer being sanitized. Raise OpwatchError if the sanitize failed.

    Changes nothing, so stopping the wait is safe.
    """
    with HeldController(find_drive_controller(identity)) as controller:
        controller.require_drive(identity)
        log = controller.read_sanitize_log()
        if log.state in (SanitizeState.UNDER_WAY, SanitizeState.FAILED):
            _wait_for_end(controller, log.action, show, resume_words)


def _wait_for_end(
    controller: HeldController, action: int, show: Callable[[str], None], resume_words: str
) -> None:
    """Wait for the end. Raise OpwatchError unless the sanitize succeeded."""
    while True:
        log = _read_log_patiently(controller, action, resume_words)
        if log.state is not SanitizeState.UNDER_WAY:
            break
        show(format_sanitize_progress(log))
        time.sleep(_POLL_S)
    if failure := find_sanitize_failure(log, action, controller.name, resume_words):
        raise OpwatchError(failure)


def _read_log_patiently(controller: HeldController, action: int, resume_words: str) -> SanitizeLog:
    """Return the sanitize log, repeating the request while the drive does not answer."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return controller.read_sanitize_log()
        except OpwatchError as error:
            if time.monotonic() > until:
                raise OpwatchError(
                    f"{controller.name}: a sanitize ({format_sanitize_kind(action)}) was started, but "
                    f"its progress cannot be read: {error}; the drive continues; once nvme sanitize-log "
                    f"/dev/{controller.name} shows that it has ended: {resume_words}"
                ) from error
        time.sleep(_POLL_S)
