"""Identity of a disk, to verify that a plan runs on the planned disk. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DiskIdentity:
    """Distinguishes a disk from all others. `boot` and `diskseq` change when a drive is reconnected, or when
    a loop device gets another file. `serial` is confirmed by the user, None if the drive reports no serial
    number. `name` is for display and never compared."""

    name: str
    dev: tuple[int, int]
    boot: str
    diskseq: int | None
    size_bytes: int
    model: str | None = None
    serial: str | None = None
    wwid: str | None = None
    nsid: int | None = None


# Attributes that a drive keeps in every slot: attribute -> words for people.
_STABLE_ATTRIBUTES = {
    "serial": "serial number",
    "wwid": "wwid",
    "nsid": "namespace",
    "model": "model",
    "size_bytes": "size in bytes",
}


# A loop device over a file has no serial number: this prefix and the diskseq serve instead.
BOOT_SERIAL = "diskseq-"


def list_differences(planned: DiskIdentity, present: DiskIdentity) -> list[str]:
    """Return the differences between the present disk and the planned disk; empty if none. Values valid for a
    single boot are compared only within the same boot."""
    unlike = [
        f"{words} {getattr(present, key)}, not {getattr(planned, key)}"
        for key, words in _STABLE_ATTRIBUTES.items()
        if getattr(present, key) != getattr(planned, key)
    ]
    if planned.boot == present.boot and planned.diskseq != present.diskseq:
        unlike.append(
            f"diskseq {present.diskseq}, not {planned.diskseq}: the device was removed and one added again"
        )
    if planned.boot != present.boot and (planned.serial or "").startswith(BOOT_SERIAL):
        unlike.append(f"serial number {present.serial} from another boot, which identifies no disk")
    return unlike


def is_same_drive(one: DiskIdentity, other: DiskIdentity) -> bool:
    """Return True if two local disks are the same drive: by WWID and namespace, or without a WWID by all
    other attributes."""
    if one.wwid or other.wwid:
        return (one.wwid, one.nsid) == (other.wwid, other.nsid)
    marks = [(disk.serial, disk.model, disk.size_bytes, disk.nsid) for disk in (one, other)]
    return bool(one.serial) and marks[0] == marks[1]
