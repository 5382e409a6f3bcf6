"""The extension: glue around BPF objects and C libraries: load, attach, sum over CPUs, copy bytes.

Layouts of what goes in and comes out are in bpf/abi and _native/block/tracer.h; opwatch/trace/abi.py packs
and reads them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Buffer

# --- counters (always there) ---

def grown(now: Buffer, then: Buffer) -> tuple[list[int], list[int]] | None:
    """Two readings of the same 64-bit counters: the numbers of those that are larger now, and the running
    totals up to each. None where one is smaller, or the total has no room in 64 bits."""

def operation_change(
    then_counters: tuple[Any, ...] | None,
    then_slots: tuple[Any, ...] | None,
    counters: tuple[Any, ...],
    slots: tuple[Any, ...],
) -> tuple[bytes, bytes, bytes]:
    """The streams of opwatch.recording.coding.operations, of plain counters and views of histograms in 64-bit
    words; None and None stand for zeros. TypeError for histograms that are no views."""

# --- tracer (absent when built without BPF) ---

class ProbeError(RuntimeError):
    """args are (errno, what, log): the log is what libbpf and the verifier said."""

# name, id, runs, run_ns, recursion_misses
ProgramInfo = tuple[str, int, int, int, int]
# name, what it needs, what becomes of it: opwatch.trace.programs.Program
WantedPrograms = Sequence[tuple[str, str, int]]

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
        programs: WantedPrograms = (),
        slow_ns: int = 0,
        by: int = 0,
    ) -> None: ...
    @property
    def lanes(self) -> tuple[int, int]:
        """Histograms of reads and writes that each target has, and CPUs: fewer than CPUs are shared."""
    @property
    def owner_room(self) -> int:
        """How many owners there is room for; 0 where none are counted."""
    def sample(self, target: int) -> bytes:
        """One struct ow_sample, absolute, summed over CPUs."""
    def programs(self) -> list[ProgramInfo]: ...
    def slow(self) -> tuple[bytes, bytes]:
        """Slow requests (struct ow_slow) out of their ring, and by target how many it had no room for."""
    def owners(self, target: int, /) -> bytes:
        """What each owner did on a target (struct ow_owner_sample), absolute, summed over CPUs."""
    def forget_owners(self, keep: int, most: int, idle_ns: int, /) -> bytes:
        """Make room for owners: with more than `keep`, forget idle ones; with more than `most` left, the
        smallest but `keep`. Return what each of them did by the last reading (struct ow_owner_sample)."""
    def chain(self, issued: int, done: int, /) -> None:
        """Programs, by descriptor, that go on with the issue and the end of discards; -1 for none."""
    def close(self) -> None: ...

class Floor:
    """Programs on the same events that no tracer can be cheaper than: bpf/lib/floor.bpf.c."""

    def __init__(self, programs: WantedPrograms) -> None: ...
    def programs(self) -> list[ProgramInfo]: ...
    def close(self) -> None: ...

class Contexts:
    """Counts switches from PID 1 to another task as a program sees them, until close()."""

    def __init__(self) -> None: ...
    def switches(self) -> int: ...
    def close(self) -> None: ...

class Discards:
    """The discard programs, loaded from construction to close(); layouts in bpf/abi/discard.h."""

    def __init__(
        self,
        pidns_dev: int,
        pidns_ino: int,
        programs: WantedPrograms,
        *,
        stalls: bool = False,
    ) -> None: ...
    def attach(self, granules: Buffer, /) -> None:
        """Once. `granules` are struct ow_granule."""
    def chained(self) -> tuple[int, int]:
        """What Tracer.chain() wants."""
    def follow(self, tgid: int, /) -> None:
        """Whose discards are ours, by the number in the namespace given; 0 for nobody's."""
    def flows(self) -> bytes:
        """Pairs of struct ow_flow_key and struct ow_flow."""
    def origins(self) -> bytes:
        """Pairs of struct ow_origin_key and struct ow_origin."""
    def loss(self) -> tuple[int, int, int, int, int]:
        """struct ow_discard_loss."""
    def attached(self) -> list[tuple[str, int]]:
        """Each program that is loaded with 0, or with the errno for which it is not attached."""
    def programs(self) -> list[ProgramInfo]: ...
    def close(self) -> None: ...

def may_attach_to_functions() -> bool:
    """Whether this kernel lets anybody attach programs to functions."""

def read_types() -> None:
    """Read the kernel's types for those who load programs later; no error where that cannot be."""

class Changes:
    """The history programs, attached from construction to close(); layouts in bpf/abi/history.h."""

    def __init__(
        self, disk: str, ring_bytes: int, programs: WantedPrograms, *, scsi: bool = False
    ) -> None: ...
    def drain(self) -> tuple[bytes, bool]:
        """Records (struct ow_change) out of the ring, and whether some that were there may be left."""
    def loss(self) -> tuple[int, int, int]:
        """struct ow_history_loss."""
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
) -> int:
    """Map memory such a Tracer would take on `cpus` CPUs. Loads nothing."""

def map_lanes(
    targets: Buffer,
    disks: Buffer,
    stamps: int,
    bios: int,
    cpus: int = 0,
    *,
    queue_time: bool = False,
) -> int:
    """For how many of its `cpus` CPUs such a Tracer would have histograms; the CPUs share fewer."""

# --- simulated SSD (always there) ---

# start_bytes, len_bytes, weight, stream
FtlZone = tuple[int, int, int, int]
# rng, position, writes, trims
FtlLoadState = tuple[int, int, int, int]

class Ftl:
    """A drive of struct ow_ftl_config (ftl.h), its fields by name; ValueError says why not."""

    def __init__(self, config: Mapping[str, int], /) -> None: ...
    @classmethod
    def load(cls, saved: Buffer, /) -> Ftl:
        """The drive that save() saved; OSError with EBADMSG or EPROTONOSUPPORT if it cannot be."""
    def save(self) -> bytes: ...
    def write(self, offset_bytes: int, len_bytes: int, stream: int = 0, /) -> None: ...
    def write_zeroes(self, offset_bytes: int, len_bytes: int, stream: int = 0, /) -> None: ...
    def read(self, offset_bytes: int, len_bytes: int, /) -> None: ...
    def trim(self, offset_bytes: int, len_bytes: int, /) -> None: ...
    def flush(self) -> None: ...
    def format(self) -> None: ...
    def power_cycle(self) -> None: ...
    def power_loss(self) -> None: ...
    def die_fail(self) -> None: ...
    def idle(self, idle_ns: int, /) -> None: ...
    def is_mapped(self, offset_bytes: int, /) -> bool: ...
    def set_trim_mode(self, mode: int, /) -> None: ...
    def counters(self) -> dict[str, int]:
        """Every field of struct ow_ftl_counters."""
    def config(self) -> dict[str, int]: ...
    def check(self) -> str | None:
        """The invariant that does not hold, None when all do."""
    def run(
        self,
        pages: int,
        zones: Sequence[FtlZone],
        sequential: bool,
        trim_ppm: int,
        rng: int,
        position: int,
        /,
    ) -> FtlLoadState: ...

class Service:
    """The time a drive takes: struct ow_service_config, its fields by name."""

    def __init__(self, drive: Ftl, config: Mapping[str, int], /) -> None: ...
    def submit(
        self,
        op: int,
        offset_bytes: int,
        len_bytes: int,
        arrive_ns: int,
        stream: int = 0,
        /,
    ) -> int:
        """When it is done, in virtual ns."""
    def pause(self, pause_ns: int, /) -> None: ...
    def now_ns(self) -> int: ...
    def run(
        self,
        *,
        io_bytes: int,
        queue_depth: int,
        read_ppm: int,
        bucket_ns: int,
        bucket_count: int,
        zones: Sequence[FtlZone],
        sequential: bool,
        trim_ppm: int,
        rng: int,
        position: int,
    ) -> tuple[bytes, bytes, FtlLoadState]:
        """struct ow_service_bucket each, the latency slots as u64, and the workload's state."""

# --- privileges ---

def limit_capabilities(keep: int) -> None:
    """Keep only the capabilities in this mask (1 << number), for this thread and those that it starts.
    Executing a file gains none from now on. OSError when the kernel refuses."""

# --- NVMe admin commands that only read ---

def nvme_get_log(
    fd: int, lid: int, length: int, lsi: int = 0, uuid_index: int = 0, nsid: int = 0
) -> tuple[int, bytes]:
    """The NVMe status (0 is success) and the page, of all namespaces; D0h may be of one.
    OSError when the kernel refuses, EPERM as well for a page that is not on the list of those that may be
    read."""

def nvme_identify(fd: int, cns: int, nsid: int) -> tuple[int, bytes]:
    """The NVMe status and the 4096 bytes of Identify."""
