"""Bytes that programs write to files: who takes them in the kernel, and their counters (bpf/abi/writes.h).
Pure."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from opwatch.errors import BadInput
from opwatch.trace.programs import Attachment, Program, ProgramSet

# The function that takes buffered writes, by file system. All direct ones end in iomap_dio_complete().
_GENERIC = "generic_perform_write"
BUFFERED_FUNCTIONS: Mapping[str, str] = {
    "ext3": _GENERIC,
    "ext4": _GENERIC,
    "f2fs": _GENERIC,
    "xfs": "iomap_file_buffered_write",
    "btrfs": "btrfs_buffered_write",
}
# f2fs has used iomap since v5.17; this function shows it.
F2FS_IOMAP = "f2fs_iomap_begin"
_MAPPED = "page_mapped"
APPLICATION_PROGRAMS: Sequence[ProgramSet] = (
    (
        Program("direct_taken", attachment=Attachment.REQUIRED),
        Program("direct_completes", attachment=Attachment.REQUIRED),
        Program("buffered_taken", attachment=Attachment.REQUIRED),
        Program(_MAPPED, needs="fault_dirty_shared_page"),
    ),
)
APPLICATION = struct.Struct("=4Q")


class ApplicationWrites(NamedTuple):
    """Absolute counters of what programs wrote (struct ow_application_writes).

    `mapped_pages` counts how often a page of a mapped file became writable; None if unknown. `lost` counts
    direct writes of unknown size.
    """

    buffered_bytes: int
    direct_bytes: int
    mapped_pages: int | None
    lost: int = 0

    @property
    def total_bytes(self) -> int:
        return self.buffered_bytes + self.direct_bytes

    def subtract(self, earlier: ApplicationWrites) -> ApplicationWrites:
        """Return the growth since an earlier reading."""
        known = self.mapped_pages is not None and earlier.mapped_pages is not None
        return ApplicationWrites(
            self.buffered_bytes - earlier.buffered_bytes,
            self.direct_bytes - earlier.direct_bytes,
            (self.mapped_pages or 0) - (earlier.mapped_pages or 0) if known else None,
            self.lost - earlier.lost,
        )


def decode_application(raw: bytes, *, counts_mapped: bool) -> ApplicationWrites:
    """Return the counters. `counts_mapped`: the program of mapped pages is attached. Raise BadInput for a
    wrong length."""
    if len(raw) != APPLICATION.size:
        raise BadInput(f"{len(raw)} bytes are not the {APPLICATION.size} bytes of a program's writes")
    buffered, direct, pages, lost = APPLICATION.unpack(raw)
    return ApplicationWrites(buffered, direct, pages if counts_mapped else None, lost)


def is_mapped_counted(attached: Sequence[tuple[str, int]]) -> bool:
    """Return whether the program of mapped pages is among the attached programs, given with their errors."""
    return (_MAPPED, 0) in attached
