"""Which disk it is: the one that a plan was made for, and the one that is there when it is run. Pure."""

from __future__ import annotations

from typing import Any

from opwatch.fields import Fields
from opwatch.frozen import asdict, frozen


@frozen
class DiskIdentity:
    """Tells one disk from every other. `boot` and `diskseq` are of this life of the device: a drive that
    comes again has others, as has another file behind the number of a loop device. `serial` is what is
    confirmed, None where the drive tells none. The name is for people, and compared with nothing."""

    name: str
    dev: tuple[int, int]
    boot: str
    diskseq: int | None
    size_bytes: int
    model: str | None = None
    serial: str | None = None
    wwid: str | None = None
    nsid: int | None = None

    def document(self) -> dict[str, Any]:
        """The identity as a journal keeps it."""
        return asdict(self) | {"dev": list(self.dev)}


def identity_of(fields: Fields) -> DiskIdentity:
    """The identity that document() wrote; BadInput for all else."""
    dev = fields.rows("dev")
    if len(dev) != 2:
        raise fields.bad("dev is no pair of numbers")
    return DiskIdentity(
        name=fields.text("name"),
        dev=(fields.count_of(dev[0], "dev"), fields.count_of(dev[1], "dev")),
        boot=fields.text("boot"),
        diskseq=fields.optional("diskseq", fields.count),
        size_bytes=fields.count("size_bytes"),
        model=fields.optional("model", fields.text),
        serial=fields.optional("serial", fields.text),
        wwid=fields.optional("wwid", fields.text),
        nsid=fields.optional("nsid", fields.count),
    )


# What a drive keeps wherever it is plugged in: attribute -> what people call it.
_LASTING = {
    "serial": "serial number",
    "wwid": "wwid",
    "nsid": "namespace",
    "model": "model",
    "size_bytes": "size in bytes",
}


# A loop device over a file has no serial number: behind this word stands its diskseq instead.
BOOT_SERIAL = "diskseq-"


def differences(planned: DiskIdentity, present: DiskIdentity) -> list[str]:
    """In what the disk that is there is not the one that was planned for; empty when it is that one. Numbers
    of this boot are compared within it alone."""
    unlike = [
        f"{words} {getattr(present, key)}, not {getattr(planned, key)}"
        for key, words in _LASTING.items()
        if getattr(present, key) != getattr(planned, key)
    ]
    if planned.boot == present.boot and planned.diskseq != present.diskseq:
        unlike.append(f"diskseq {present.diskseq}, not {planned.diskseq}: it went and something came again")
    if planned.boot != present.boot and (planned.serial or "").startswith(BOOT_SERIAL):
        unlike.append(f"the number {present.serial} of another boot: it tells no disk from another one")
    return unlike


def is_by_another_path(one: DiskIdentity, other: DiskIdentity) -> bool:
    """Whether two disks of this host are the same drive: its worldwide name says so, and where it has none,
    all else that it tells."""
    if one.wwid or other.wwid:
        return (one.wwid, one.nsid) == (other.wwid, other.nsid)
    marks = [(disk.serial, disk.model, disk.size_bytes, disk.nsid) for disk in (one, other)]
    return bool(one.serial) and marks[0] == marks[1]
