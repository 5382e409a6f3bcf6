"""The ways to make a drive as if it was never used, as data."""

from __future__ import annotations

from opwatch.errors import UsageError
from opwatch.named import NamedTuple


class PurgeWay(NamedTuple):
    """One of these ways: its name, what a plan says of it, and what it needs. `seconds` is how long it takes
    where a drive has told that, None where it takes long and nobody knows how long."""

    name: str
    what: str
    needs: str
    seconds: float | None = 0.0


DISCARD = PurgeWay("discard", "discard the whole drive", "a drive that obeys discards")
FORMAT = PurgeWay(
    "format",
    "format the namespace (nvme format), in the block size that it has",
    "an NVMe drive that formats one namespace alone, and nvme-cli",
)
SECURE_ERASE = PurgeWay(
    "secure-erase",
    "erase the drive (ATA SECURITY ERASE UNIT)",
    "an ATA drive with the feature, not frozen and without a password",
)
SANITIZE = PurgeWay(
    "sanitize",
    "sanitize the drive, for as long as it takes, and discard all of it",
    "an NVMe drive of one namespace that erases its blocks, or its key (SANICAP)",
    seconds=None,
)
PURGES = (DISCARD, FORMAT, SANITIZE, SECURE_ERASE)


def purge_of(name: str) -> PurgeWay:
    """The way of a name that a person typed, or a journal has."""
    for way in PURGES:
        if way.name == name:
            return way
    raise UsageError(f"there is no purge {name!r:.60}: there are {', '.join(way.name for way in PURGES)}")
