"""Build hardening of the drive's server, which runs as root and reads files that other users may have
written."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from opwatch.drive.server import PROGRAM

_PT_DYNAMIC, _PT_GNU_STACK, _PT_GNU_RELRO = 2, 0x6474E551, 0x6474E552
_DT_FLAGS, _DT_FLAGS_1, _DF_BIND_NOW, _DF_1_NOW, _DF_1_PIE = 30, 0x6FFFFFFB, 8, 1, 0x08000000


def _parse_segments(elf: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (type, flags, offset, size) of each segment of a little-endian 64-bit ELF file."""
    assert elf[:6] == b"\x7fELF\x02\x01"
    (start,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<2H", elf, 54)
    for at in range(start, start + size * count, size):
        kind, flags, offset = struct.unpack_from("<2IQ", elf, at)
        yield kind, flags, offset, struct.unpack_from("<Q", elf, at + 32)[0]


@pytest.fixture
def elf() -> bytes:
    if not PROGRAM.exists():
        pytest.skip("the server was not built, because libfuse3 was missing")
    return PROGRAM.read_bytes()


def test_relocation_tables_are_read_only_at_run_time(elf: bytes) -> None:
    segments = {kind: (flags, offset, size) for kind, flags, offset, size in _parse_segments(elf)}
    assert _PT_GNU_RELRO in segments
    assert not segments[_PT_GNU_STACK][0] & 1
    _, offset, size = segments[_PT_DYNAMIC]
    tags = dict(struct.iter_unpack("<2Q", elf[offset : offset + size]))
    assert tags.get(_DT_FLAGS, 0) & _DF_BIND_NOW or tags.get(_DT_FLAGS_1, 0) & _DF_1_NOW
    assert tags[_DT_FLAGS_1] & _DF_1_PIE


def test_server_is_built_with_overflow_checks(elf: bytes) -> None:
    assert b"\0__stack_chk_fail\0" in elf
    # The compiler's checked variants of memcpy and similar functions.
    assert b"_chk\0" in elf.replace(b"\0__stack_chk_fail\0", b"\0")
