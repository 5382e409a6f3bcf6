"""Decide whether and how a drive can be sanitized, and interpret the sanitize log. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.counters.decode.sanitize_log import (
    BLOCK_ERASE,
    CRYPTO_ERASE,
    OVERWRITE,
    SanitizeLog,
    SanitizeState,
)
from opwatch.times import format_estimate

_KINDS = {OVERWRITE: "overwrite", BLOCK_ERASE: "block erase", CRYPTO_ERASE: "crypto erase"}


@dataclass(frozen=True, slots=True)
class SanitizeOffer:
    """A drive's answers about sanitize.

    Sanitize affects all `namespaces`, attached or not. `log` is None if the drive does not support the
    command.
    """

    controller: Controller
    namespace: Namespace
    nsid: int
    namespaces: tuple[int, ...]
    log: SanitizeLog | None


def list_sanitize_objections(offer: SanitizeOffer) -> list[str]:
    """Return the reasons not to sanitize this drive, phrased to follow the disk's name."""
    controller, log = offer.controller, offer.log
    if not controller.can_sanitize or log is None:
        return ["does not support Sanitize (SANICAP is 0)"]
    reasons = []
    if not choose_sanitize_action(controller):
        reasons.append(
            "supports neither block erase nor crypto erase (SANICAP): after an overwrite it would be "
            "full, not new"
        )
    if controller.has_peers:
        reasons.append(
            "may have other controllers in its subsystem, which a sanitize would affect too (CMIC)"
        )
    if offer.namespace.is_shared:
        reasons.append("may be attached to several controllers (NMIC)")
    if offer.namespaces != (offer.nsid,):
        numbers = ", ".join(str(one) for one in offer.namespaces)
        reasons.append(
            f"has other namespaces than this one ({offer.nsid}), which a sanitize would erase too: "
            f"{numbers or 'none'}"
        )
    if log.state is SanitizeState.UNDER_WAY:
        reasons.append(
            "is already being sanitized by another program: wait until that has ended (nvme sanitize-log)"
        )
    if log.state is SanitizeState.FAILED:
        reasons.append(
            "failed its last sanitize and refuses reads and writes until one succeeds: run nvme "
            "sanitize, then watch nvme sanitize-log"
        )
    return reasons


def choose_sanitize_action(controller: Controller) -> int:
    """Return the sanitize action to use, or 0 if the drive offers no suitable action.

    Block erase is preferred and leaves the blocks erased as on a new drive, whereas after a crypto erase some
    blocks are still to be erased.
    """
    if controller.erases_blocks:
        return BLOCK_ERASE
    return CRYPTO_ERASE if controller.erases_keys else 0


def format_sanitize_kind(action: int) -> str:
    return _KINDS.get(action, f"action {action}")


def format_sanitize_progress(log: SanitizeLog) -> str:
    """Return text on the progress and, if the drive reports one, its estimate of the total duration."""
    done = "" if log.progress_ratio is None else f", {100 * log.progress_ratio:.1f} %"
    seconds = log.seconds.get(log.action)
    takes = f", {format_estimate(seconds)} in total as the drive reports" if seconds else ""
    return f"the drive is sanitizing ({format_sanitize_kind(log.action)}){done}{takes}"


def find_sanitize_failure(log: SanitizeLog, action: int, name: str, resume_words: str) -> str | None:
    """Return the error message for a finished sanitize, or None on success.

    `name` is the controller's.
    """
    kind = format_sanitize_kind(action)
    if log.state is SanitizeState.FAILED:
        return (
            f"{name}: the sanitize ({kind}) failed. The drive refuses reads and writes until one succeeds: "
            f"nvme sanitize /dev/{name} --sanact={action}, then nvme sanitize-log /dev/{name} until it has "
            f"ended, then {resume_words}"
        )
    if log.state is SanitizeState.NEVER:
        return f"{name} accepted a sanitize ({kind}) but reports that it was never sanitized (log page 81h)"
    if log.action != action:
        return (
            f"{name}: the sanitize that ended ({format_sanitize_kind(log.action)}) is not the one that "
            f"was started ({kind}): another program sanitizes the drive; once that has ended: {resume_words}"
        )
    return None
