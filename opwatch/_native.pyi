"""The extension: glue around BPF objects and C libraries: load, attach, sum over CPUs, copy bytes.

Layouts of what goes in and comes out are in bpf/opwatch_abi.h and tracer.h; opwatch/abi.py packs and reads
them.
"""

from typing_extensions import Buffer

# --- tracer (absent when built without BPF) ---

class ProbeError(RuntimeError):
    """args are (errno, what, log): the log is what libbpf and the verifier said."""

# name, id, runs, run_ns, recursion_misses
ProgramInfo = tuple[str, int, int, int, int]

class Tracer:
    """Programs attached from construction to close()."""

    def __init__(
        self,
        targets: Buffer,
        disks: Buffer,
        stamps: int,
        bios: int,
        cpus: int = 0,
        *,
        queue_time: bool = False,
        raw_tp: bool = False,
    ) -> None: ...
    @property
    def raw_tp(self) -> bool:
        """True when the helper-call twins are in use."""
    def sample(self, target: int) -> bytes:
        """One struct ow_sample, absolute, summed over CPUs."""
    def programs(self) -> list[ProgramInfo]: ...
    def close(self) -> None: ...

class Floor:
    """Empty programs on the same events."""

    def __init__(self) -> None: ...
    def programs(self) -> list[ProgramInfo]: ...
    def close(self) -> None: ...

def enable_stats() -> int:
    """A descriptor: the kernel keeps run time and count of programs while it is open."""

def map_bytes(
    targets: Buffer,
    disks: Buffer,
    stamps: int,
    bios: int,
    cpus: int = 0,
    *,
    queue_time: bool = False,
    raw_tp: bool = False,
) -> int:
    """Map memory such a Tracer would take on `cpus` CPUs. Loads nothing."""

# --- NVMe admin commands that only read ---

def nvme_get_log(fd: int, lid: int, length: int, lsi: int = 0, uuid_index: int = 0) -> tuple[int, bytes]:
    """The NVMe status (0 is success) and the page. OSError when the kernel refuses, EPERM as well for a page
    that is not on the list of those that may be read."""

def nvme_identify(fd: int, cns: int, nsid: int) -> tuple[int, bytes]:
    """The NVMe status and the 4096 bytes of Identify."""
