"""Whether a drive can be sanitized by what it says, in which way, and what its log then says. Pure."""

from __future__ import annotations

from opwatch.counters.decode.identify import Controller, Namespace
from opwatch.counters.decode.sanitize_log import (
    BLOCK_ERASE,
    CRYPTO_ERASE,
    OVERWRITE,
    SanitizeLog,
    SanitizeState,
)
from opwatch.frozen import frozen
from opwatch.times import roughly

_KINDS = {OVERWRITE: "overwrite", BLOCK_ERASE: "block erase", CRYPTO_ERASE: "crypto erase"}


@frozen
class SanitizeOffer:
    """What a drive says of a sanitize, which is one of all of its `namespaces`, attached or not. `log` is
    None where the drive does not know the command."""

    controller: Controller
    namespace: Namespace
    nsid: int
    namespaces: tuple[int, ...]
    log: SanitizeLog | None


def reasons_against_sanitize(offer: SanitizeOffer) -> list[str]:
    """Why this drive is not sanitized, each the end of a sentence that begins with the disk's name."""
    controller, log = offer.controller, offer.log
    if not controller.can_sanitize or log is None:
        return ["offers no Sanitize (SANICAP is 0)"]
    reasons = []
    if not sanitize_action(controller):
        reasons.append(
            "offers neither block erase nor crypto erase (SANICAP): by an overwrite it would be full, not new"
        )
    if controller.has_peers:
        reasons.append("may have other controllers in its subsystem, which a sanitize is of as well (CMIC)")
    if offer.namespace.is_shared:
        reasons.append("may be attached to several controllers (NMIC)")
    if offer.namespaces != (offer.nsid,):
        numbers = ", ".join(str(one) for one in offer.namespaces)
        reasons.append(
            f"has other namespaces than this one ({offer.nsid}), and a sanitize is one of all: there are "
            f"{numbers or 'none'}"
        )
    if log.state is SanitizeState.UNDER_WAY:
        reasons.append("is being sanitized already, by whoever: wait until it has ended (nvme sanitize-log)")
    if log.state is SanitizeState.FAILED:
        reasons.append(
            "could not be sanitized the last time, and refuses reads and writes until that succeeds: "
            "nvme sanitize, then nvme sanitize-log, say what becomes of it"
        )
    return reasons


def sanitize_action(controller: Controller) -> int:
    """The kind of sanitize that is taken of those that it offers, 0 where there is none: erased blocks are
    those of a new drive, and of those whose key is gone some are still to be erased."""
    if controller.erases_blocks:
        return BLOCK_ERASE
    return CRYPTO_ERASE if controller.erases_keys else 0


def kind_of_sanitize(action: int) -> str:
    return _KINDS.get(action, f"action {action}")


def sanitize_progress(log: SanitizeLog) -> str:
    """How far it is, and how long all of it takes by the drive's own estimate."""
    done = "" if log.progress_ratio is None else f", {100 * log.progress_ratio:.1f} %"
    seconds = log.seconds.get(log.action)
    takes = f", which takes {roughly(seconds)} in all as it says itself" if seconds else ""
    return f"the drive is sanitizing itself ({kind_of_sanitize(log.action)}){done}{takes}"


def sanitize_failure(log: SanitizeLog, action: int, name: str, resume_words: str) -> str | None:
    """What is to be said of a sanitize of this kind that has ended, None when it succeeded. `name` is the
    controller's."""
    kind = kind_of_sanitize(action)
    if log.state is SanitizeState.FAILED:
        return (
            f"{name}: the sanitize ({kind}) failed. The drive refuses reads and writes until one succeeds: "
            f"nvme sanitize /dev/{name} --sanact={action}, then nvme sanitize-log /dev/{name} until it has "
            f"ended, then {resume_words}"
        )
    if log.state is SanitizeState.NEVER:
        return f"{name} took a sanitize ({kind}), and says that it was never sanitized (log page 81h)"
    if log.action != action:
        return (
            f"{name}: the sanitize that has ended is another one ({kind_of_sanitize(log.action)}) than the "
            f"{kind} that was begun: somebody else sanitizes it; once that has ended: {resume_words}"
        )
    return None
