"""Read all counters of a measurement of writes."""

from __future__ import annotations

import time
from contextlib import ExitStack

from opwatch.collectors.block.diskstats import StatReader
from opwatch.collectors.owners.io_stats import GroupAccounting
from opwatch.collectors.space.free_space import sync_filesystem
from opwatch.collectors.space.mount_handle import open_mount
from opwatch.collectors.writes.application import ApplicationTracer
from opwatch.collectors.writes.filesystem_counters import read_dirty_bytes, read_filesystem_counters
from opwatch.collectors.writes.tracer import WriteTracer
from opwatch.errors import OpwatchError, Unsupported
from opwatch.host.device import BlockDevice, Devices, Presence
from opwatch.host.usage import Mount
from opwatch.writes.reading import AccountedWrites, DeviceWrites, WritesReading, WriteStack
from opwatch.writes.witnesses import FilesystemCounters

_SETTLE_S = 0.25
_STEP_S = 0.002


class WritesReader:
    """Reads a stack of devices from construction until close()."""

    def __init__(
        self,
        devices: Devices,
        stack: WriteStack,
        mount: Mount | None = None,
        *,
        by_cgroup: bool = False,
        by_process: bool = False,
    ) -> None:
        self.stack, self._mount = stack, mount
        self._tops = [_require_device(devices, name) for name in stack.tops]
        with ExitStack() as opened:
            self._stats: dict[str, list[StatReader]] = {}
            for layer in stack.layers:
                device = _require_device(devices, layer.device)
                # Old kernels count the requests of NVMe multipath at its paths only.
                counted = devices.list_paths(device) or [device]
                self._stats[layer.device] = [StatReader(one) for one in counted]
                for stat in self._stats[layer.device]:
                    opened.callback(stat.close)
            self._present = [Presence(top) for top in self._tops]
            for presence in self._present:
                opened.callback(presence.close)
            self.tracer = WriteTracer(
                self._tops, has_filesystem=stack.is_mounted, by_cgroup=by_cgroup, by_process=by_process
            )
            opened.callback(self.tracer.close)
            self._accounting = GroupAccounting(self._tops) if by_cgroup else None
            self._application, self._application_reason = _open_application(mount, by_process=by_process)
            if self._application:
                opened.callback(self._application.close)
            self._opened = opened.pop_all()

    def sync(self) -> None:
        """Write all dirty data and metadata of the file system, and wait until the devices are idle, for a
        limited time."""
        if self._mount:
            with open_mount(self._mount) as descriptor:
                sync_filesystem(descriptor)
        deadline = time.monotonic() + _SETTLE_S
        while any(one.in_flight for one in self._read_devices().values()) and time.monotonic() < deadline:
            time.sleep(_STEP_S)

    def read(self) -> WritesReading:
        """Return the counters now. Raise OpwatchError if a device is gone or was replaced."""
        for top, presence in zip(self._tops, self._present, strict=True):
            if not presence.is_same_device():
                raise OpwatchError(f"{top.name} is gone, or is another device now")
        before = self._accounting.read() if self._accounting else {}
        groups = self.tracer.read_groups()
        after = self._accounting.read() if self._accounting else {}
        return WritesReading(
            mono_ns=time.monotonic_ns(),
            targets=self.tracer.read_counts(),
            devices=self._read_devices(),
            counters=self._read_counters(),
            groups=groups,
            dirty_bytes=read_dirty_bytes(),
            journal_reason=self.tracer.journal_reason,
            application=self._application.read_counts() if self._application else None,
            application_reason=self._application_reason,
            accounted={name: AccountedWrites(before.get(name, 0), size) for name, size in after.items()},
            buffered_processes=self._application.read_processes() if self._application else {},
            direct_processes=self.tracer.read_processes(),
        )

    @property
    def accounting_reason(self) -> str | None:
        """Return why the kernel's counts of control groups are unknown, or None if they are read."""
        return self._accounting.reason if self._accounting else None

    def count_missed_runs(self) -> tuple[int, int]:
        """Return the skipped runs of the programs that classify writes, and of those that count what programs
        write."""
        return self.tracer.count_missed_runs(), (
            self._application.count_missed_runs() if self._application else 0
        )

    def _read_devices(self) -> dict[str, DeviceWrites]:
        found = {}
        for name, stats in self._stats.items():
            samples = [stat.read_stats() for stat in stats]
            known = [sample for sample in samples if sample]
            if len(known) == len(samples):
                # A bio-based driver has no count before the first write.
                size = sum(sample.bytes.get("write", 0) for sample in known)
                found[name] = DeviceWrites(size, sum(sample.in_flight for sample in known))
        return found

    def _read_counters(self) -> FilesystemCounters:
        if self.stack.filesystem is None:
            return FilesystemCounters()
        return read_filesystem_counters(self.stack.filesystem, self._tops[0])

    def close(self) -> None:
        self._opened.close()


def _open_application(
    mount: Mount | None, *, by_process: bool
) -> tuple[ApplicationTracer | None, str | None]:
    """Return the tracer of programs' writes to a mount, or None with the reason."""
    if mount is None:
        return None, None
    try:
        return ApplicationTracer(mount, by_process=by_process), None
    except Unsupported as error:
        return None, str(error)


def _require_device(devices: Devices, name: str) -> BlockDevice:
    device = devices.by_name(name)
    if device is None:
        raise OpwatchError(f"{name} is gone")
    return device
