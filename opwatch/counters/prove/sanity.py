"""Checks of each counter before reporting. Each returns a reason for refusal, or None."""

from __future__ import annotations

# A lifetime ratio of NAND to host bytes outside this range comes from a wrong unit.
RATIO = (0.05, 50.0)
# Ratio of NAND bytes to average erase count x capacity.
ERASE_RATIO = (1 / 30, 30.0)
_MIN_ERASES = 10
# Some new models arrive with this many erases from factory tests.
_FACTORY_ERASES = 150
# A larger mean write means a wrong unit, because systems split larger requests.
_MAX_MEAN_WRITE = 2 << 20
# Log 02h rounds up to 512,000 bytes.
_ROUNDING = 1 << 20
_WRAP_BYTES = (1 << 32) * 512
_HOUR_S = 3600
# Maximum bandwidth of an interface, in bytes per second.
_SATA, _SAS, _NVME = 600_000_000, 4_800_000_000, 32_000_000_000
FASTEST = {"ata": _SATA, "scsi": _SAS, "nvme": _NVME}


# 22 years: a larger value counts seconds, minutes or something else.
MAX_HOURS = 200_000
# Drives under constant writes for years reach 30,000.
_MAX_DRIVE_WRITES = 40_000
# Values outside these limits are noise from any source.
_LIMITS = {"bytes": (0, 10**20), "celsius": (-60, 150), "percent": (0, 255), "hours": (0, MAX_HOURS)}
_COUNTS = (0, 1 << 64)


# Values beyond 2^200 are equally wrong, and floats end at 2^1024.
_CEILING = 1 << 200


def check_value(value: int, unit: str) -> str | None:
    """Refuse a value that no drive can have: noise or another field was read."""
    least, most = _LIMITS.get(unit, _COUNTS)
    return None if least <= value <= most else f"{value} {unit} are not credible"


def check_mean_write(
    n_bytes: int, commands: int | None, lba_bytes: int | None, limit: int | None
) -> str | None:
    """Check S4: the mean write is at least a logical block, and at most the transfer limit of a command."""
    if not commands:
        return None
    n_bytes, commands = min(n_bytes, _CEILING), min(commands, _CEILING)
    smallest, largest = lba_bytes or 512, min(limit or _MAX_MEAN_WRITE, _MAX_MEAN_WRITE)
    if n_bytes < commands * min(smallest, 4096) * 0.98:
        return (
            f"{n_bytes} bytes in {commands} write commands are less than one logical block per command: "
            "the counter has wrapped or its unit is wrong"
        )
    # A few commands prove little because of rounding and factory writes.
    if commands > 1000 and n_bytes > commands * largest * 1.02 + _ROUNDING:
        return (
            f"{n_bytes / commands / 1024:.0f} KiB per write command is more than a command can carry: "
            "the unit is wrong"
        )
    return None


def check_wrap(n_bytes: int, commands: int | None) -> str | None:
    """Refuse a count that may have wrapped at 2^32 sectors: smaller than its commands at 4 KiB each."""
    if not commands or n_bytes >= _WRAP_BYTES:
        return None
    if n_bytes >= commands * 4096 or commands * 4096 <= _WRAP_BYTES:
        return None
    return f"{n_bytes} bytes in {commands} write commands: the counter may have wrapped at 2^32 sectors"


def check_speed(n_bytes: int, hours: int | None, protocol: str) -> str | None:
    """Refuse more bytes than the interface can carry in the power-on hours."""
    if hours is None or hours > MAX_HOURS or n_bytes <= (hours + 24) * _HOUR_S * FASTEST[protocol]:
        return None
    return f"{n_bytes} bytes in {hours} hours are more than the interface can carry: the unit is wrong"


def check_drive_writes(n_bytes: int, capacity: int | None) -> str | None:
    """Refuse more drive writes than any drive survives. This limit works without hours."""
    if not capacity or n_bytes <= _MAX_DRIVE_WRITES * capacity:
        return None
    return f"{n_bytes} bytes are more than {_MAX_DRIVE_WRITES} times the capacity: the unit is wrong"


def check_erase_maximum(
    n_bytes: int, average_erases: int | None, capacity: int | None, most: float = ERASE_RATIO[1]
) -> str | None:
    """Refuse host bytes that the flash erases cannot hold, with a margin for compression."""
    if not average_erases or average_erases < _MIN_ERASES or not capacity:
        return None
    fit = min(n_bytes, _CEILING) / (average_erases * capacity)
    if fit <= most:
        return None
    return (
        f"{fit:.3g} times the bytes of {average_erases} erases of the drive: the counter or its unit is wrong"
    )


def check_erase_minimum(n_bytes: int, average_erases: int | None, capacity: int | None) -> str | None:
    """Refuse host bytes that are too few for the erases, because no drive's WAF exceeds 50."""
    if not average_erases or not capacity:
        return None
    worn = max(average_erases - _FACTORY_ERASES, 0) * capacity
    if worn <= RATIO[1] * n_bytes:
        return None
    return (
        f"{average_erases} erases of the drive are {worn / max(n_bytes, 1):.3g} times {n_bytes} bytes: "
        "the counter has wrapped or its unit is larger"
    )


def check_small_unit(n_bytes: int, hours: int | None, unit: int) -> str | None:
    """Refuse a counter of small units that hardly moved in weeks of use: the unit may be larger."""
    if unit > 4096 or hours is None or not 500 <= hours <= MAX_HOURS or n_bytes >= hours * 100_000:
        return None
    return f"{n_bytes} bytes in {hours} hours are too few to determine the unit: it may be larger"


def check_ratio(nand: int, host: int | None, capacity: int | None) -> str | None:
    """Check S2: the lifetime ratio must be plausible. A new drive's NAND holds factory writes."""
    if not host or not nand:
        return None
    nand, host = min(nand, _CEILING), min(host, _CEILING)
    if nand < host * RATIO[0] and host > 10**10:
        return f"NAND writes of {nand / host:.2g} times the host's are impossible: the unit is wrong"
    if nand > host * RATIO[1] and not (capacity and nand < 4 * capacity):
        return f"NAND writes of {nand / host:.2g} times the host's are not credible: the unit is unproven"
    return None


def check_erases(nand: int, average_erases: float | None, capacity: int | None) -> str | None:
    """Check S3: NAND bytes must fit the erase counts within a factor of 30, from 10 erases on."""
    if not average_erases or not capacity or average_erases < _MIN_ERASES:
        return None
    nand = min(nand, _CEILING)
    least = max(average_erases - _FACTORY_ERASES, 0) * capacity * ERASE_RATIO[0]
    if least <= nand <= average_erases * capacity * ERASE_RATIO[1]:
        return None
    fit = nand / (average_erases * capacity)
    return (
        f"NAND writes are {fit:.2g} times the bytes of {average_erases:.0f} erases of the drive: wrong unit"
    )


def find_first_reason(*reasons: str | None) -> str | None:
    """Return the first reason to refuse, or None."""
    return next((reason for reason in reasons if reason), None)
