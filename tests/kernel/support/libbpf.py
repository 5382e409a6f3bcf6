"""A minimal libbpf binding that runs one program on our memory (BPF_PROG_TEST_RUN)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
_lib.bpf_object__open_file.restype = ctypes.c_void_p
_lib.bpf_object__open_file.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
_lib.bpf_object__load.argtypes = [ctypes.c_void_p]
_lib.bpf_object__close.argtypes = [ctypes.c_void_p]
_lib.bpf_object__find_program_by_name.restype = ctypes.c_void_p
_lib.bpf_object__find_program_by_name.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_lib.bpf_program__fd.argtypes = [ctypes.c_void_p]
_lib.bpf_object__find_map_fd_by_name.argtypes = [ctypes.c_void_p, ctypes.c_char_p]


class _TestRun(ctypes.Structure):
    """struct bpf_test_run_opts; only its size and the program's return value are used here."""

    _fields_ = (
        ("sz", ctypes.c_size_t),
        ("data", ctypes.c_void_p * 4),
        ("sizes", ctypes.c_uint32 * 4),
        ("repeat", ctypes.c_int),
        ("retval", ctypes.c_uint32),
        ("duration", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("cpu", ctypes.c_uint32),
        ("batch_size", ctypes.c_uint32),
    )


class Loaded:
    """A loaded object with one program and one map of a single value."""

    def __init__(self, handle: int, program: str, map_: str) -> None:
        self._program = _lib.bpf_program__fd(_lib.bpf_object__find_program_by_name(handle, program.encode()))
        self._map = _lib.bpf_object__find_map_fd_by_name(handle, map_.encode())

    def run_program(self, value: bytearray) -> None:
        """Write the value into the map, run the program once, read the value back."""
        key = ctypes.c_uint32(0)
        buffer = (ctypes.c_char * len(value)).from_buffer(value)
        assert _lib.bpf_map_update_elem(self._map, ctypes.byref(key), buffer, ctypes.c_uint64(0)) == 0
        options = _TestRun(sz=ctypes.sizeof(_TestRun))
        assert _lib.bpf_prog_test_run_opts(self._program, ctypes.byref(options)) == 0
        assert options.retval == 0
        assert _lib.bpf_map_lookup_elem(self._map, ctypes.byref(key), buffer) == 0


@contextmanager
def load_object(path: Path, program: str, map_: str) -> Iterator[Loaded]:
    handle = _lib.bpf_object__open_file(str(path).encode(), None)
    assert handle
    try:
        assert _lib.bpf_object__load(handle) == 0
        yield Loaded(handle, program, map_)
    finally:
        _lib.bpf_object__close(handle)
