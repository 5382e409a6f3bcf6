"""The extension: glue around the C libraries beside it."""

from collections.abc import Mapping, Sequence

from typing_extensions import Buffer

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
        /,
    ) -> tuple[bytes, bytes, FtlLoadState]:
        """struct ow_service_bucket each, the latency slots as u64, and the workload's state."""
