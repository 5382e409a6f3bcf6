"""Run and trace a trim: state before, tracer during, state after. Returns the evidence."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opwatch.collectors.audit.accounts import DriveCounters
from opwatch.collectors.audit.backing_files import BackingFiles
from opwatch.collectors.audit.discard_programs import Loading
from opwatch.collectors.audit.discards import POLL_S, DiscardTracer
from opwatch.collectors.audit.kernel_log import LogTail
from opwatch.collectors.block.diskstats import decode_stat, explain_unverified
from opwatch.collectors.space.mount_handle import open_mount
from opwatch.collectors.stack.layers import LayerReader
from opwatch.collectors.stale.readback import read_use_count
from opwatch.errors import OpwatchError, PermissionMissing, RefusedError
from opwatch.host.device import BlockDevice, Devices
from opwatch.host.privilege import build_own_command
from opwatch.host.usage import Mount
from opwatch.tools.acting.trim import fitrim_process
from opwatch.trim.audit.audit import AuditEvidence, Held, ReadBack
from opwatch.trim.audit.fitrim import Asked
from opwatch.trim.audit.flow import Stage, Trace, sum_flows
from opwatch.trim.audit.programs import AUDIT_OPTIONS, ProgramOptions
from opwatch.trim.audit.settling import quiet_after_trim
from opwatch.trim.layers.discard_path import find_short_paths
from opwatch.trim.layers.kinds import find_granule, find_kind
from opwatch.trim.stack.layers import Stack
from opwatch.trim.stale.sentinel import BLOCK, ReadsAs

if TYPE_CHECKING:
    from opwatch._native import Discards
    from opwatch.tools.acting.stale.sentinel_maps import SentinelMaps
    from opwatch.trim.stale.stale import Count


# Writable by root only. In /run/lock any user could block an audit.
LOCKS = Path("/run/opwatch/audits")
# A drive may delay deallocation, so wait this long for old data to disappear.
PROVE_WAIT_S = 5.0

ShowMessage = Callable[[str], None]
# Verdict of the core on the evidence so far: drives may still free space.
MayFreeLater = Callable[[AuditEvidence], bool]


@contextlib.contextmanager
def lock_audits(stack: Stack, say: ShowMessage) -> Iterator[None]:
    """Serialize audits of one disk, because work of kernel threads cannot be attributed to an audit."""
    with contextlib.ExitStack() as locks:
        for leaf in sorted(stack.find_leaves(), key=lambda layer: layer.device):
            path = LOCKS / leaf.device.replace("/", "!")
            try:
                LOCKS.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                raise PermissionMissing(
                    f"{path}: {error.strerror}. Try: sudo {build_own_command()} trim audit ..."
                ) from error
            locks.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another audit of {leaf.device}")
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def find_counted_devices(stack: Stack) -> list[BlockDevice]:
    """Return the devices of a stack that have separate statistics."""
    devices = Devices()
    return [
        device
        for layer in stack.layers
        if not find_kind(layer).is_part_of_disk and (device := devices.by_name(layer.device))
    ]


def make_tracer(
    stack: Stack, following: ProgramOptions = AUDIT_OPTIONS, *, programs: Discards | None = None
) -> DiscardTracer:
    """Return a tracer with the granules of all devices of a stack."""
    granules = {layer.device: granule for layer in stack.layers if (granule := find_granule(layer))}
    return DiscardTracer(find_counted_devices(stack), granules, following, programs=programs)


def _read_use_counts(stack: Stack) -> dict[str, int]:
    """Return the bytes that drives count as in use, for drives with such a count."""
    devices = Devices()
    counts = {
        leaf.device: read_use_count(device)
        for leaf in stack.find_leaves()
        if (device := devices.by_name(leaf.device))
    }
    return {name: count for name, count in counts.items() if count is not None}


def _read_written_bytes(name: str) -> int | None:
    """Return the bytes written to a disk since boot by the kernel's statistics, or None without them."""
    device = Devices().by_name(name)
    text = device.read_attribute("stat") if device and not explain_unverified(device) else None
    return decode_stat(text)[1]["write"] if text else None


class _Proof:
    """Sentinels around a trim, and the drive's own count of them."""

    def __init__(self, mount: Mount, stack: Stack) -> None:
        # Imported only for --prove, like the other imports of this class, because of 20 dependencies.
        from opwatch.tools.acting.stale.sentinels import Sentinels, choose_sizes

        self._stack = stack
        self._sizes = choose_sizes(stack)
        self._sentinels = Sentinels(mount, stack, self._sizes, copies=True)
        self._before = _read_use_counts(stack)
        self._written: Mapping[str, int] = {}
        self._unproven: str | None = None
        self._maps: SentinelMaps | None = None

    def __enter__(self) -> _Proof:
        from opwatch.tools.acting.stale.sentinel_maps import SentinelMaps

        try:
            self._sentinels.__enter__()
            self._sentinels.plant()
            self._written = _read_use_counts(self._stack)
            self._maps = SentinelMaps(self._stack, self._sentinels)
            self._sentinels.delete_files()
        except OpwatchError as error:
            self._unproven = str(error)
        except BaseException:
            # __exit__ is not called after a failed __enter__, and open files would keep the filesystem busy.
            self._sentinels.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._sentinels.__exit__()

    def read_back(self, trace: Trace) -> ReadBack:
        """Judge the sentinels. Slow drives are read again."""
        if self._unproven:
            return ReadBack({}, self._unproven)
        if sum_flows(trace.select(Stage.FS_OUTSIDE)).bytes:
            # XFS may have skipped sentinels, so the drive never got their discards. A trim by ranges reaches
            # them.
            with contextlib.suppress(OpwatchError):
                self._sentinels.trim_ranges()
        end = time.monotonic() + PROVE_WAIT_S
        if self._maps:
            self._maps.wait_until_gone(PROVE_WAIT_S)
        blocks_by_reading: Counter[ReadsAs] = Counter()
        by_device: defaultdict[str, Counter[ReadsAs]] = defaultdict(Counter)
        notes = []
        sentinels = self._sentinels.judge_sentinels(end - time.monotonic())
        for sentinel in sentinels:
            for kind, blocks in sentinel.inside.items():
                blocks_by_reading[kind] += blocks * BLOCK
                by_device[sentinel.device][kind] += blocks * BLOCK
            if sentinel.reason:
                notes.append(f"sentinel of {sentinel.size_bytes} B: {sentinel.reason}")
        judged = (
            blocks_by_reading.total()
            - blocks_by_reading[ReadsAs.REALLOCATED]
            - blocks_by_reading[ReadsAs.UNREADABLE]
        )
        reason = None if judged else "no sentinel block could be checked"
        maps = self._maps.judge_maps(sentinels) if self._maps else {}
        read = {device: dict(counts) for device, counts in by_device.items()}
        return ReadBack(dict(blocks_by_reading), reason, tuple(notes), self._read_count(), maps, read)

    def _read_count(self) -> Count | None:
        """Return the drive's count around the sentinels, or None with several drives or without a count."""
        from opwatch.trim.stale.stale import Count

        if len(self._before) != 1 or self._before.keys() != self._written.keys():
            return None
        [name] = self._before
        end = time.monotonic() + PROVE_WAIT_S
        while True:
            after = _read_use_counts(self._stack).get(name)
            if after is None:
                return None
            count = Count(self._before[name], self._written[name], after, sum(self._sizes))
            if count.has_followed_trim or time.monotonic() > end:
                return count
            time.sleep(0.1)


def stack_after(before: Stack, mount: Mount | None) -> Stack:
    """Return the current stack, without layers if the device disappeared."""
    if mount:
        return LayerReader().read_mount(mount)
    device = Devices().by_name(before.layers[0].device)
    return LayerReader().read_device(device) if device else replace(before, layers=())


class _Witnesses:
    """Sources that are read once before and once after a trim: drives and kernel log."""

    def __init__(self, before: Stack, is_early: MayFreeLater) -> None:
        self._before = before
        self._is_early = is_early
        self._counted = _read_use_counts(before)
        self._written = {name: _read_written_bytes(name) for name in self._counted}
        self._accounts = DriveCounters(before)
        self._files = BackingFiles(before)
        self._log = LogTail(before)

    def prepare_reading(self) -> None:
        """Prepare for the reading after the trim while the kernel trims."""
        self._accounts.import_decoders()

    def add_to(self, evidence: AuditEvidence, mount: Mount | None) -> AuditEvidence:
        """Return the evidence with the current readings."""
        return replace(
            self._add_use_counts(evidence),
            after=stack_after(self._before, mount),
            accounts=tuple(self._accounts.compare_counters()),
            files=self._files.read_changes(),
            log=self._log.read_log(),
        )

    def _add_use_counts(self, evidence: AuditEvidence) -> AuditEvidence:
        """Add the drives' current use counts. Waits for drives that may free space later, but not again if a
        drive has not even freed the sentinels by now."""
        count = evidence.read_back.count if evidence.read_back else None
        end = time.monotonic() + (0 if count and count.has_ignored_trim else PROVE_WAIT_S)
        while True:
            evidence = replace(evidence, in_use=dict(self._compare_use_counts()))
            if not evidence.in_use or time.monotonic() > end or not self._is_early(evidence):
                return evidence
            time.sleep(0.1)

    def _compare_use_counts(self) -> Iterator[tuple[str, Held]]:
        now = _read_use_counts(self._before)
        for name, was in self._counted.items():
            then, written = self._written[name], _read_written_bytes(name)
            if name in now:
                since = None if then is None or written is None else written - then
                yield name, Held(was, now[name], since)


def _make_follower(tracer: DiscardTracer, *meanwhile: Callable[[], None]) -> Callable[[int], None]:
    def follow_child(pid: int) -> None:
        tracer.follow_process(pid)
        threading.Thread(target=lambda: [one() for one in meanwhile]).start()

    return follow_child


def _refuse_to_fail_paths(stack: Stack, point: str) -> None:
    """Raise RefusedError if a trim would make multipath fail a path."""
    for short in find_short_paths(stack):
        raise RefusedError(
            f"{point}: {short.words} (multipath): the first discard would fail this path"
            f" (limit-shorter). opwatch trim check {point} shows what to do. To trim"
            f" nevertheless: opwatch trim audit --watch {point} -- fstrim {point}"
        )


def trim_and_trace(
    mount: Mount,
    asked: Asked,
    patience_s: float,
    say: ShowMessage,
    *,
    loading: Loading,
    is_early: MayFreeLater,
    prove: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
    leaving: contextlib.ExitStack | None = None,
) -> AuditEvidence:
    """Trim and trace one filesystem with the programs of `loading`.

    `prove`: write sentinels before and read them back after. `is_early` returns whether drives may need more
    time for this evidence. `meanwhile` runs in a thread while the kernel trims. `leaving` closes the
    programs, which may take longer than processing the evidence.
    """
    with open_mount(mount), contextlib.ExitStack() as entered:
        # The open descriptor pins the mount from here on.
        before = LayerReader().read_mount(mount)
        _refuse_to_fail_paths(before, mount.point)
        entered.enter_context(lock_audits(before, say))
        proof = entered.enter_context(_Proof(mount, before)) if prove else None
        if proof:
            before = LayerReader().read_mount(mount)  # Includes the space of the sentinels
        witnesses = _Witnesses(before, is_early)
        tracer = (leaving or entered).enter_context(make_tracer(before, programs=loading.wait_for_programs()))
        entered.callback(tracer.start_closing)
        answer = fitrim_process.trim_in_child(
            mount, asked, _make_follower(tracer, witnesses.prepare_reading, meanwhile)
        )
        settled = tracer.wait_quiet(quiet_after_trim(before), patience_s)
        trace = tracer.read_trace()
        tracer.start_closing()
        read_back = proof.read_back(trace) if proof else None
        evidence = AuditEvidence(before, before, trace, asked, answer, settled=settled, read_back=read_back)
        return witnesses.add_to(evidence, mount)


def trace_other_trims(
    before: Stack,
    mount: Mount | None,
    wait: Callable[[], None],
    patience_s: float,
    quiet_s: float = POLL_S,
    *,
    is_early: MayFreeLater,
    list_vanished: Callable[[], Collection[str]] = tuple,
) -> AuditEvidence:
    """Trace the trims of other processes below a mount or device while `wait` runs.

    `list_vanished` returns the disks that disappeared or were replaced since the start.
    """
    witnesses = _Witnesses(before, is_early)
    with make_tracer(before, ProgramOptions(claims=True)) as tracer:
        wait()
        settled = tracer.wait_quiet(quiet_s, patience_s)
        trace = tracer.read_trace()
        tracer.start_closing()
        evidence = witnesses.add_to(AuditEvidence(before, before, trace, settled=settled), mount)
        return _leave_out_later_state(evidence, list_vanished())


def _leave_out_later_state(evidence: AuditEvidence, disks: Collection[str]) -> AuditEvidence:
    """Return the evidence without the state of these disks after the trim, because another disk may have the
    name by then."""
    if not disks:
        return evidence
    layers = tuple(
        layer
        for layer in evidence.after.layers
        if layer.device not in disks
        and not (find_kind(layer).is_part_of_disk and any(name in disks for name in layer.below))
    )
    return replace(
        evidence,
        after=replace(evidence.after, layers=layers),
        in_use={name: held for name, held in evidence.in_use.items() if name not in disks},
        accounts=tuple(account for account in evidence.accounts if account.device not in disks),
        files={name: file for name, file in evidence.files.items() if name not in disks},
    )
