"""The methods of returning a drive to its unused state, as data."""

from __future__ import annotations

from typing import NamedTuple

from opwatch.errors import UsageError


class PurgeMethod(NamedTuple):
    """A purge method: its name, its description in a plan, and its requirements.

    `seconds` is the duration if known from the drive, or None if the purge takes long and its duration is
    unknown.
    """

    name: str
    what: str
    needs: str
    seconds: float | None = 0.0


DISCARD = PurgeMethod("discard", "discard the whole drive", "a drive that accepts discards")
FORMAT = PurgeMethod(
    "format",
    "format the namespace (nvme format), keeping its block size",
    "an NVMe drive that formats a single namespace, and nvme-cli",
)
SECURE_ERASE = PurgeMethod(
    "secure-erase",
    "erase the drive (ATA SECURITY ERASE UNIT)",
    "an ATA drive with the feature, not frozen and without a password",
)
SANITIZE = PurgeMethod(
    "sanitize",
    "sanitize the drive, which may take long, and discard all of it",
    "an NVMe drive with one namespace that supports block or crypto erase (SANICAP)",
    seconds=None,
)
PURGES = (DISCARD, FORMAT, SANITIZE, SECURE_ERASE)


def find_purge(name: str) -> PurgeMethod:
    """Return the method with this name, which a user typed or a journal recorded."""
    for way in PURGES:
        if way.name == name:
            return way
    raise UsageError(f"unknown purge {name!r:.60}; available: {', '.join(way.name for way in PURGES)}")
