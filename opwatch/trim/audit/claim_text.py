"""Describe fstrim's byte count for a trim. Pure."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from opwatch.trim.audit.audit import ALL, AuditEvidence
from opwatch.trim.audit.claims import Claim, describe_claims, sum_claimed_bytes
from opwatch.trim.filesystems.kinds import find_filesystem

_XFS_NOTE = "which is the size of the requested range: XFS stopped counting in 6.11"


def describe_claim(evidence: AuditEvidence, others: Sequence[Claim], sent: int) -> str:
    """Return fstrim's result as text, with a note if the byte count is not the trimmed bytes."""
    answer, asked, filesystem = evidence.answer, evidence.asked, evidence.before.filesystem
    claims_request = filesystem is not None and find_filesystem(filesystem.kind).claims_request
    if answer is None:
        text = describe_claims(evidence.trace, others)
        return f"{text}, {_XFS_NOTE}" if claims_request and (sum_claimed_bytes(others) or 0) > sent else text
    if answer.error:
        return f"the kernel refused: {errno.errorcode.get(answer.error, answer.error)}"
    if answer.claimed is None:
        return "nothing: a signal ended FITRIM"
    text = f"{answer.claimed} B trimmed"
    if claims_request and asked and asked.length == ALL and answer.claimed > sent:
        return f"{text}, {_XFS_NOTE}"
    return text
