"""Unpack the kernel on the host: QEMU boots an ELF kernel faster because the guest need not unpack it."""

from __future__ import annotations

import lzma
import os
import shutil
import struct
import subprocess
from pathlib import Path

_SETUP_SECTORS = 0x1F1
_MAGIC = 0x202
_PAYLOAD = 0x248
_XZ = b"\xfd7zXZ\0"
_ZSTD = b"\x28\xb5\x2f\xfd"


def extract_payload(bzimage: bytes) -> bytes | None:
    """Return the compressed kernel in a bzImage, by the offsets of the x86 boot protocol, or None."""
    if len(bzimage) < _PAYLOAD + 8 or bzimage[_MAGIC : _MAGIC + 4] != b"HdrS":
        return None
    offset, length = struct.unpack_from("<II", bzimage, _PAYLOAD)
    start = (bzimage[_SETUP_SECTORS] + 1) * 512 + offset
    # The last four bytes hold the unpacked size, which the decompressor does not need.
    return bzimage[start : start + length - 4] or None


def unpack_kernel(bzimage: bytes) -> bytes | None:
    """Return the ELF kernel in a bzImage, or None if we cannot undo the compression."""
    packed = extract_payload(bzimage)
    if packed is None:
        return None
    if packed.startswith(_XZ):
        kernel = lzma.LZMADecompressor().decompress(packed)
    elif packed.startswith(_ZSTD) and shutil.which("zstd"):
        done = subprocess.run(["zstd", "-dcq"], input=packed, capture_output=True, check=False)
        kernel = done.stdout
    else:
        return None
    return kernel if kernel.startswith(b"\x7fELF") else None


def get_boot_file(vmlinuz: Path) -> Path:
    """Return the file for `-kernel`: the ELF kernel next to vmlinuz, or vmlinuz itself."""
    elf = vmlinuz.with_name("vmlinux" + vmlinuz.name.removeprefix("vmlinuz"))
    if elf.is_file():
        return elf
    kernel = unpack_kernel(vmlinuz.read_bytes())
    if kernel is None:
        return vmlinuz
    part = elf.with_name(f"{elf.name}.{os.getpid()}")
    part.write_bytes(kernel)
    os.rename(part, elf)
    return elf
