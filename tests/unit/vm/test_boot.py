"""Boot files of a guest: module order, the archive, the unpacked kernel, the frames."""

from __future__ import annotations

import lzma
import struct
from pathlib import Path

import pytest

from tests.vm.archive import arm64, packages
from tests.vm.archive.assets import parse_version
from tests.vm.boot import bootimage, initramfs, protocol, qemu
from tests.vm.boot.protocol import Decoder, Frame, Kind
from tests.vm.errors import BenchError

DEP = """\
kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs.ko.xz
kernel/net/9p/9pnet.ko.xz:
kernel/fs/netfs.ko.xz: kernel/net/9p/9pnet.ko.xz
kernel/drivers/char/virtio_console.ko.xz:
"""


def test_module_order_has_needs_first_and_once() -> None:
    graph = initramfs.parse_dependencies(DEP)
    order = initramfs.order_modules(["9p", "virtio-console", "9pnet"], graph)
    names = [initramfs.get_module_name(file) for file in order]
    assert names == ["9pnet", "netfs", "9p", "virtio_console"]


def test_builtin_modules_are_left_out_and_unknown_ones_named() -> None:
    graph = initramfs.parse_dependencies(DEP)
    builtin = ["kernel/drivers/virtio/virtio_pci.ko"]
    assert initramfs.order_modules(["virtio_pci"], graph, builtin) == []
    with pytest.raises(BenchError, match="no_such"):
        initramfs.order_modules(["no_such"], graph)


def test_archive_entries_are_aligned_and_closed() -> None:
    archive = initramfs.encode_cpio({"init": (0o100755, b"12345"), "dev": (0o40755, b"")})
    assert len(archive) % 4 == 0
    assert archive.startswith(b"070701")
    assert archive.count(b"070701") == 3
    assert b"TRAILER!!!" in archive


def _encode_bzimage(packed: bytes) -> bytes:
    head = bytearray(1024)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", head, 0x248, 16, len(packed) + 4)
    return bytes(head) + b"\0" * 16 + packed + b"size" + b"rest"


def test_kernel_is_unpacked() -> None:
    kernel = b"\x7fELF" + b"kernel" * 100
    assert bootimage.unpack_kernel(_encode_bzimage(lzma.compress(kernel))) == kernel


def test_kernel_that_cannot_be_unpacked_is_none() -> None:
    assert bootimage.unpack_kernel(b"") is None
    assert bootimage.unpack_kernel(b"\0" * 4096) is None
    assert bootimage.unpack_kernel(_encode_bzimage(b"some other compression")) is None
    assert bootimage.unpack_kernel(_encode_bzimage(lzma.compress(b"no ELF"))) is None


def test_frames_survive_any_cut() -> None:
    frames = [Frame(Kind.OUT, b"abc"), Frame(Kind.PONG), Frame(Kind.EXIT, b"\0\1\0\0")]
    stream = b"".join(frame.encode() for frame in frames)
    for size in range(1, len(stream) + 1):
        decoder = Decoder()
        pieces = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert [f for piece in pieces for f in decoder.decode_frames(piece)] == frames


def test_desynchronised_stream_is_an_error() -> None:
    with pytest.raises(ValueError, match=rf"\b{0xFFFFFFFF} bytes"):
        list(Decoder().decode_frames(b"\xff\xff\xff\xffo"))


@pytest.mark.parametrize(("wait", "status"), [(0, 0), (7 << 8, 7), (9, 137), (0x8B, 139)])
def test_exit_status_matches_a_shell(wait: int, status: int) -> None:
    assert protocol.decode_exit_status(struct.pack("<i", wait)) == status


def test_run_frame_refuses_nul_bytes() -> None:
    assert protocol.make_run_frame(["a", "b c"], "/d", {"K": "v"}).payload == b"/d\x002\0a\0b c\0K=v\0"
    with pytest.raises(ValueError, match="NUL"):
        protocol.make_run_frame(["a\0b"], "/", {})


def test_emulator_version() -> None:
    assert parse_version("QEMU emulator version 10.0.2 (Debian 1:10)") == (10, 0)
    assert parse_version("") is None


def test_another_architecture_has_its_own_board_root_and_shares(tmp_path: Path) -> None:
    args = " ".join(
        qemu.build_base_args(qemu.Shape(), tmp_path, tmp_path / "k", Path("/m"), qemu.ARM, tmp_path)
    )
    assert "-machine virt " in args and "console=ttyAMA0" in args and f"path={tmp_path}," in args
    args = " ".join(qemu.build_base_args(qemu.Shape(), tmp_path, tmp_path / "k", Path("/m")))
    assert "-machine q35," in args and "console=ttyS0" in args and "path=/," in args
    assert "mount_tag=checkout" in " ".join(qemu.build_share_args("checkout", tmp_path))


def test_another_architecture_has_its_own_packages(tmp_path: Path) -> None:
    options = packages.Apt(tmp_path, "arm64")._format_options()
    assert {"APT::Architecture=arm64", "APT::Architectures::=arm64"} <= set(options)
    assert "Dir::State::status=/dev/null" in options
    assert not [option for option in packages.Apt(tmp_path)._format_options() if "Architecture" in option]


def test_missing_packages_for_another_architecture_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    missing = arm64.explain_missing_tools(arm64.read_config())
    assert missing and missing.endswith(": qemu-system-arm gcc-aarch64-linux-gnu")


def test_a_compiler_without_its_c_library_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    foreign = arm64.read_config()
    for name in (foreign.emulator, foreign.compiler):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = arm64.explain_missing_tools(foreign)
    assert missing and missing.endswith(": libc6-dev-arm64-cross")
