"""The C extension: loads and attaches BPF programs, sums their counters over CPUs, and wraps C libraries.

Struct layouts are in bpf/abi and _native/block/tracer.h; opwatch/trace/abi.py packs and parses them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Buffer

# --- counters (always present) ---

def find_growth(now: Buffer, then: Buffer) -> tuple[list[int], list[int]] | None:
    """Compare two readings of the same 64-bit counters. Return the indices of counters that grew and the
    running totals up to each, or None if a counter shrank or the total exceeds 64 bits."""

def encode_change(
    then_counters: tuple[Any, ...] | None,
    then_slots: tuple[Any, ...] | None,
    counters: tuple[Any, ...],
    slots: tuple[Any, ...],
) -> tuple[bytes, bytes, bytes]:
    """Return the streams of opwatch.recording.coding.operations. Slots are buffers of 64-bit words, one per
    histogram; None and None stand for zeros. Raise TypeError if a histogram is not a buffer."""

# --- tracer (absent in a build without BPF) ---

class ProbeError(RuntimeError):
    """Its args are (errno, what, log); the log has the messages of libbpf and the verifier."""

# name, id, runs, run_ns, recursion_misses
ProgramInfo = tuple[str, int, int, int, int]
# name, required kernel type, attachment: see opwatch.trace.programs.Program
ProgramSpecs = Sequence[tuple[str, str, int]]

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
        programs: ProgramSpecs = (),
        slow_ns: int = 0,
        by: int = 0,
    ) -> None: ...
    @property
    def lanes(self) -> tuple[int, int]:
        """Return the number of read and write histograms per target, and of CPUs. Fewer histograms than
        CPUs are shared."""
    @property
    def max_owners(self) -> int:
        """Return the maximum number of owners; 0 if the tracer does not count owners."""
    @property
    def throttle_error(self) -> int:
        """Return the errno if the kernel refuses the program for the time in io.max, else 0."""
    def sample(self, target: int) -> bytes:
        """Return one struct ow_sample: absolute counters, summed over CPUs."""
    def programs(self) -> list[ProgramInfo]: ...
    def slow(self) -> tuple[bytes, bytes]:
        """Take slow requests (struct ow_slow) out of the ring. Also return, per target, how many did not
        fit."""
    def owners(self, target: int, /) -> bytes:
        """Return the counters of a target's owners (struct ow_owner_sample): absolute, summed over CPUs."""
    def evict_owners(self, keep: int, max_kept: int, idle_ns: int, /) -> bytes:
        """Free entries for new owners: if there are more than `keep`, evict idle owners; if more than
        `max_kept` are left, evict the smallest until `keep` are left. Return the counters of evicted owners
        at their last reading (struct ow_owner_sample)."""
    def chain(self, issued: int, done: int, /) -> None:
        """Tail-call the programs of these descriptors when a discard is issued and completes; -1 for none."""
    def close(self) -> None: ...

class Floor:
    """Minimal programs on the same events, a lower bound of every tracer's cost: bpf/lib/floor.bpf.c."""

    def __init__(self, programs: ProgramSpecs) -> None: ...
    def programs(self) -> list[ProgramInfo]: ...
    def close(self) -> None: ...

class Contexts:
    """Counts switches from PID 1 to another task, as seen by a BPF program, until close()."""

    def __init__(self) -> None: ...
    def switches(self) -> int: ...
    def close(self) -> None: ...

class Discards:
    """The discard programs, loaded from construction to close(); layouts in bpf/abi/discard.h."""

    def __init__(
        self,
        pidns_dev: int,
        pidns_ino: int,
        programs: ProgramSpecs,
        *,
        stalls: bool = False,
    ) -> None: ...
    def attach(self, granules: Buffer, /) -> None:
        """Attach the programs. Call once. `granules` is an array of struct ow_granule."""
    def get_chained(self) -> tuple[int, int]:
        """Return the descriptors to pass to Tracer.chain()."""
    def follow(self, tgid: int, /) -> None:
        """Set the process that issues our own discards, by PID in the configured namespace; 0 for none."""
    def flows(self) -> bytes:
        """Return pairs of struct ow_flow_key and struct ow_flow."""
    def origins(self) -> bytes:
        """Return pairs of struct ow_origin_key and struct ow_origin."""
    def loss(self) -> tuple[int, int, int, int, int]:
        """Return the fields of struct ow_discard_loss."""
    def attached(self) -> list[tuple[str, int]]:
        """Return each loaded program with 0, or with the errno of its failed attachment."""
    def programs(self) -> list[ProgramInfo]: ...
    def close(self) -> None: ...

def can_attach_to_functions() -> bool:
    """Return False if this kernel refuses to attach programs to functions."""

def read_types() -> None:
    """Read the kernel's types in advance for later loads. Ignore errors."""

class Changes:
    """The history programs, attached from construction to close(); layouts in bpf/abi/history.h."""

    def __init__(self, disk: str, ring_bytes: int, programs: ProgramSpecs, *, scsi: bool = False) -> None: ...
    def drain(self) -> tuple[bytes, bool]:
        """Take records (struct ow_change) out of the ring. Also return whether more may be left."""
    def loss(self) -> tuple[int, int, int]:
        """Return the fields of struct ow_history_loss."""
    def programs(self) -> list[ProgramInfo]: ...
    def close(self) -> None: ...

class Writes:
    """The programs that classify writes, attached from construction to close(); layouts in bpf/abi/writes.h.

    `targets` is an array of struct ow_write_target, `functions` one of (address, rule, padding) as u64, u32
    and u32. Raise ValueError for too many. `super_block` is the device number of the file system whose
    programs' writes are counted, `buffered` the function that takes them."""

    def __init__(
        self,
        targets: Buffer,
        functions: Buffer,
        programs: ProgramSpecs,
        *,
        groups: bool = False,
        super_block: int = 0,
        buffered: str = "",
        processes: bool = False,
    ) -> None: ...
    def application(self) -> bytes:
        """Return struct ow_application_writes."""
    def counts(self) -> bytes:
        """Return one struct ow_target_writes per target."""
    def groups(self) -> bytes:
        """Return pairs of struct ow_write_group and struct ow_write_count."""
    def processes(self) -> bytes:
        """Return pairs of struct ow_write_process and struct ow_process_writes."""
    def attached(self) -> list[tuple[str, int]]:
        """Return each loaded program with 0, or with the errno of its failed attachment."""
    def programs(self) -> list[ProgramInfo]: ...
    def close(self) -> None: ...

def enable_stats() -> int:
    """Return a descriptor. While it is open, the kernel counts the runs and run time of BPF programs."""

def compute_map_bytes(
    targets: Buffer,
    disks: Buffer,
    stamps: int,
    bios: int,
    cpus: int = 0,
    *,
    queue_time: bool = False,
) -> int:
    """Return the map memory of such a Tracer on `cpus` CPUs. Loads nothing."""

def count_lanes(
    targets: Buffer,
    disks: Buffer,
    stamps: int,
    bios: int,
    cpus: int = 0,
    *,
    queue_time: bool = False,
) -> int:
    """Return the number of read and write histograms per target of such a Tracer. If below `cpus`, CPUs
    share them."""

# --- simulated SSD (always present) ---

# start_bytes, len_bytes, weight, stream
FtlZone = tuple[int, int, int, int]
# rng, position, writes, trims
FtlLoadState = tuple[int, int, int, int]

class Ftl:
    """A simulated drive; the dict has the fields of struct ow_ftl_config (ftl.h). ValueError gives the
    reason."""

    def __init__(self, config: Mapping[str, int], /) -> None: ...
    @classmethod
    def load(cls, saved: Buffer, /) -> Ftl:
        """Return the drive of an earlier save(). Raise OSError with EBADMSG or EPROTONOSUPPORT if invalid."""
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
        """Return all fields of struct ow_ftl_counters."""
    def set_owner(self, owner: int, /) -> None:
        """Set the owner of later writes, from 0 (the first) to 255."""
    def owner_counters(self, owner: int, /) -> dict[str, int]:
        """Return all fields of struct ow_ftl_owner_counters; 0 until an owner other than 0 was set."""
    def config(self) -> dict[str, int]: ...
    def check(self) -> str | None:
        """Return the violated invariant, or None if all hold."""
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
    """The drive's timing model; the dict has the fields of struct ow_service_config."""

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
        """Return the completion time in virtual nanoseconds."""
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
        """Return struct ow_service_bucket records, the latency slots as u64, and the workload's state."""

# kind, random_percent, align, blocks, ranks, power, center, normal_width, position, sizes, zones and
# differences: the fields of struct ow_host_shape (ftl/host/host.h), with arrays as bytes
HostShape = tuple[int, int, int, int, int, float, float, int, int, bytes, bytes, bytes]
# weight, read_ppm, flush_every, write, read
HostJob = tuple[float, int, int, HostShape, HostShape]

class HostLoad:
    """A host's load on a drive: requests of jobs, or struct ow_host_record, repeated endlessly. Raise OSError
    with EINVAL for impossible ones."""

    def __init__(
        self,
        drive: Ftl,
        jobs: Sequence[HostJob],
        records: bytes | None,
        used_bytes: int,
        queue_depth: int,
        seed: int,
    ) -> None: ...
    def run(self, host_bytes: int, /) -> tuple[int, int, int]:
        """Write that many bytes without a clock. Return requests, host bytes and NAND bytes."""
    def play(self, clock: Service, host_bytes: int, /) -> tuple[int, int, int, int, bytes]:
        """Write that many bytes in a closed loop that continues across calls. Return requests, host bytes,
        NAND bytes, virtual nanoseconds, and the latency slots as u64."""
    def draw(self, count: int, /) -> list[tuple[int, int, int]]:
        """Return the next requests (operation, offset, length) without executing them."""

def scale_requests(
    sectors: Buffer,
    lengths: Buffer,
    trims: Buffer,
    units: int,
    count: int,
    unit_bytes: int,
    /,
    *,
    owners: Buffer = b"",
) -> tuple[bytes, bytes, bytes | None]:
    """Scale requests of a disk of `units`, as u64, u32, bool and u8, to `count` units that stand for all of
    them. Without owners, all requests belong to owner 0.
    Return struct ow_host_record, the writes of each chosen unit as u32, and the chosen units as sorted u64,
    or None if all are."""

# --- privileges ---

def limit_capabilities(keep: int) -> None:
    """Keep only the capabilities in this mask (1 << number) for this thread and threads that it starts
    later. Executing a file gains none from now on. Raise OSError if the kernel refuses."""

# --- memory ---

def release_memory() -> None:
    """Return freed memory to the kernel, and unmap pages of programs and libraries that only the start
    needed. The kernel maps them again on demand."""

# --- read-only NVMe admin commands ---

def nvme_get_log(
    fd: int, lid: int, length: int, lsi: int = 0, uuid_index: int = 0, nsid: int = 0
) -> tuple[int, bytes]:
    """Return the NVMe status (0 is success) and the log page, for all namespaces; D0h may be for one
    namespace. Raise OSError if the kernel refuses, and with EPERM for a page that is not on our list of
    allowed pages."""

def nvme_identify(fd: int, cns: int, nsid: int) -> tuple[int, bytes]:
    """Return the NVMe status and the 4096 bytes of Identify."""
