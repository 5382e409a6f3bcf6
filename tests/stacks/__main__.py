"""`python -m tests.stacks FIRST:LAST`: test the stacks of these seeds; shrink stacks with contradictions."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from opwatch.errors import OpwatchError, RefusedError
from opwatch.tools.commands.trim.audit import audit_mount
from opwatch.trim.audit.audit import Asked, Audit, Verdict
from opwatch.trim.audit.flow import Stage, sum_flows
from opwatch.trim.layers.arrays import find_array
from tests.kernel.support import trims
from tests.stacks.build import find_usable_parts, mount_stack
from tests.stacks.built import MountedStack
from tests.stacks.recipe import MIB, Recipe, generate_smaller, make_recipe
from tests.vm.guest.support import sysfs
from tests.vm.guest.support.shell import run_command
from tests.vm.guest.support.trims import CheckAnswer, run_check

_GOOD = {Verdict.PROVEN, Verdict.PROVEN_PARTWAY, Verdict.ACCEPTED}
_BY_OUTLOOK = {
    "reaches": _GOOD,
    "part": {Verdict.PARTIAL},
    "nothing": {Verdict.NOT_SENT, Verdict.REJECTED, Verdict.UNKNOWN},
    "unknown": set(Verdict),
}
# The queue counts as idle if no discard completes for this long.
_QUIET_S = 1.0
# Codes that --prove settles by checking whether the drive really freed the data.
_ANSWERED = {"advisory"}


class _RefusedAsPredicted(Exception):
    """The audit refused as predicted, because the trim would have failed a path.

    There is nothing to compare.
    """


def _prepare_stack(built: MountedStack, one: Recipe) -> None:
    """Write and delete the data without trimming."""
    victims = _write_victims(built.point, one)
    run_command("sync", "-f", str(built.point))
    for victim in victims:
        victim.unlink()
    run_command("sync", "-f", str(built.point))
    if "discard" in one.options:
        _wait_for_discards()
    built.allocate_blocks()
    built.break_now()


def _wait_for_discards() -> None:
    """Wait until a "discard" mount's background thread has sent all discards."""
    before, after = -1, _count_discarded_bytes()
    while before != after:
        time.sleep(_QUIET_S)
        before, after = after, _count_discarded_bytes()


def _count_discarded_bytes() -> int:
    """Return the bytes discarded on all devices."""
    return sum(sysfs.read_stat(disk.name).discard_bytes for disk in sysfs.SYS_BLOCK.iterdir())


def _write_victims(point: Path, one: Recipe) -> list[Path]:
    """Write the files to delete: a single file, or every third of many small files of various sizes."""
    if not one.scattered:
        victim = point / "victim"
        victim.write_bytes(os.urandom(MIB) * (one.deleted // MIB))
        return [victim]
    noise = os.urandom(48 << 10)
    files = [point / f"part{number}" for number in range(one.deleted // (8 << 10))]
    for number, file in enumerate(files):
        # os.open because pathlib's overhead exceeds the time of the thousands of small writes.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, noise[: 1024 * (1 + number * 7 % 47)])
        os.close(descriptor)
    return files[::3]


def _run_once(one: Recipe, *, prove: bool) -> tuple[CheckAnswer, Audit, int]:
    """Return (check's answer, the audit, the bytes freed according to the kernel)."""
    for attempt in range(trims.ATTEMPTS):
        with mount_stack(one) as built:
            _prepare_stack(built, one)
            foretold = run_check(built.point)
            freed_since = built.watch_freed_bytes()
            try:
                result = audit_mount(trims.find_mount_at(built.point), Asked(), prove=prove)
            except RefusedError as refused:
                if "limit-shorter" not in foretold.reason_codes:
                    raise
                raise _RefusedAsPredicted from refused
            freed = freed_since()
        if attempt == trims.ATTEMPTS - 1 or not trims.has_host_losses(result):
            break
    return foretold, result, freed


def find_contradictions(one: Recipe) -> Iterator[str]:
    """Yield the contradictions between check, audit, audit --prove and the kernel."""
    foretold, plain, freed = _run_once(one, prove=False)
    _, proven, freed_proven = _run_once(one, prove=True)
    for name, result, oracle in (("audit", plain, freed), ("prove", proven, freed_proven)):
        if result.unexplained_bytes:
            yield f"{name}: {result.unexplained_bytes} B unexplained"
        # If the kernel skipped a BPF program, the audit counts and reports the miss; nothing else is known.
        if trims.has_host_losses(result) and result.evidence.trace.misses:
            continue
        # A "discard" mount does not repeat discards already sent; f2fs sends discards from a thread of its
        # own.
        sends_itself = "filesystem-trims-later" in trims.sum_reasons(result)
        nothing_left = result.verdict is Verdict.NOTHING_LEFT and (not oracle or sends_itself)
        # Sentinels on a drive that drops discards still hold data, which check cannot predict. Other
        # sentinels may be proven.
        unproven = {Verdict.UNKNOWN, Verdict.PARTIAL}
        contradicted = name == "prove" and one.fault == "drops" and result.verdict in unproven
        if result.verdict not in _BY_OUTLOOK[foretold.outlook] and not (nothing_left or contradicted):
            yield f"check says {foretold.outlook}, {name} {result.verdict.value}"
        is_again = "btrfs-discards-again" in trims.sum_reasons(result)
        twice = sum_flows(result.evidence.trace.select(Stage.BIO_REPEATED)).bytes if is_again else 0
        # The audit does not know the space freed by writes of zeroes below, and reports this limit.
        explained = "loop-on-device" in trims.sum_reasons(result)
        if name == "audit" and not explained and abs(result.reached_bytes - oracle) > twice:
            yield f"audit: reached {result.reached_bytes} B, and {oracle} B were freed"
        if result.verdict is Verdict.PROVEN and (not oracle or one.fault == "drops"):
            yield f"{name}: PROVEN, and nothing was freed of a drive"
    # Little is known about a trim that lost events or found nothing, or with concurrent discards by other
    # processes.
    beside = trims.sum_reasons(proven).keys() & {"others-write", "xfs-busy"}
    if trims.has_host_losses(proven) or proven.verdict is Verdict.NOTHING_LEFT or beside:
        return
    # The two runs have different sentinels and files, and different free chunks of a pool. After a trim
    # without effect, nothing is reported about lower layers.
    if not proven.reached_bytes:
        return
    # Each run builds a new stack, and an array fails a bad member only at the first error.
    if _count_missing_members(plain) != _count_missing_members(proven):
        return
    forgotten = (
        trims.sum_reasons(plain).keys() - trims.sum_reasons(proven).keys() - _ANSWERED - {"trace-lost"}
    )
    if forgotten:
        yield f"prove forgets {', '.join(sorted(forgotten))}"


def _count_missing_members(result: Audit) -> list[int | None]:
    """Return the number of missing members per array, before and after."""
    stacks = (result.evidence.before, result.evidence.after)
    return [array.degraded for stack in stacks for layer in stack.layers if (array := find_array(layer))]


def _judge_recipe(one: Recipe) -> list[str] | None:
    """Return the recipe's contradictions.

    None if the recipe cannot be judged: not enough room for the files, a stack that cannot be built, an
    incomplete map of the disk, or a filesystem that shut down when its device started to fail, which the
    audit reports.
    """
    try:
        return list(find_contradictions(one))
    except _RefusedAsPredicted:
        return []
    except (OpwatchError, RuntimeError) as error:
        # The error comes from the audit, or from sync on an intermediate filesystem.
        if one.fault != "fails" or "Input/output error" not in str(error):
            raise
        return None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EINVAL, errno.EOVERFLOW):
            raise
        return None


def _shrink_recipe(one: Recipe, said: list[str]) -> tuple[Recipe, list[str]]:
    """Return the smallest recipe that still has contradictions, and the contradictions."""
    for candidate in generate_smaller(one):
        if less := _judge_recipe(candidate):
            return _shrink_recipe(candidate, less)
    return one, said


def main(text: str) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        # Background jobs of a shell ignore SIGINT; both signals must tear the stack down.
        signal.signal(number, lambda *_: sys.exit(1))
    first, _, last = text.partition(":")
    counts: Counter[str] = Counter()
    layers = find_usable_parts()
    for seed in range(int(first), int(last or int(first) + 1)):
        one = make_recipe(seed, layers)
        said = _judge_recipe(one)
        if said is None:
            print(f"{seed}: {one}: too small for what is deleted, not to be built, or shut down", flush=True)
            counts["left out"] += 1
            continue
        print(f"{seed}: {one}: " + ("; ".join(said) or "right"), flush=True)
        counts["wrong" if said else "right"] += 1
        if said:
            least, less = _shrink_recipe(one, said)
            print(f"  smallest: {least}: " + "; ".join(less), flush=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
