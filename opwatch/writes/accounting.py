"""The kernel's own count of each control group's writes (io.stat), to compare with ours. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from opwatch.foreign import parse_unsigned
from opwatch.writes.reading import AccountedWrites, WritesReading

_ROOT, _FIELD = "/", "wbytes="


def parse_accounted_writes(text: str, devices: Collection[str]) -> int:
    """Return the written bytes that an io.stat has for these devices, given as "major:minor"."""
    total = 0
    for line in text.splitlines():
        number, *fields = line.split()[:64] or [""]
        if number in devices:
            sizes = [parse_unsigned(field[len(_FIELD) :]) for field in fields if field.startswith(_FIELD)]
            total += sum(size or 0 for size in sizes)
    return total


def find_disagreements(begin: WritesReading, end: WritesReading, names: Mapping[int, str]) -> Iterator[str]:
    """Yield a sentence for each group whose bytes the kernel counted differently.

    The root group is left out: its io.stat has all writes of the machine. A removed group's bytes stay in the
    io.stat of the group above, so bytes of groups without a name may be missing anywhere.
    """
    own: dict[str, int] = {}
    unnamed = 0
    for key, count in end.groups.items():
        earlier = begin.groups.get(key)
        size = count.bytes - (earlier.bytes if earlier else 0)
        if key.cgroup in names:
            own[names[key.cgroup]] = own.get(names[key.cgroup], 0) + size
        else:
            unnamed += size
    for name, accounted in sorted(end.accounted.items()):
        if name == _ROOT:
            continue
        first = begin.accounted.get(name, AccountedWrites(0, 0))
        least, most = accounted.before - first.after, accounted.after - first.before
        counted = sum(size for below, size in own.items() if f"{below}/".startswith(f"{name}/"))
        if not least - unnamed <= counted <= most:
            yield f"{name}: {counted} bytes counted, but its io.stat grew by {most}"
