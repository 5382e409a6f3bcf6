"""The ATA security feature set: its status in IDENTIFY DEVICE, and the commands of an erase. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from opwatch.errors import BadInput

# Deliberately not secret: users need this password if a killed sweep left a drive locked.
PASSWORD = "opwatch"
_PAGE_BYTES, _PASSWORD_BYTES = 512, 32
_ENHANCED = 1 << 1
# Bits of IDENTIFY word 128.
_SUPPORTED, _ENABLED, _LOCKED, _FROZEN, _EXPIRED, _HAS_ENHANCED = (1 << bit for bit in range(6))
_IS_LONG, _LONGEST, _LONG_LONGEST = 1 << 15, 0xFF, 0x7FFF
_MINUTES_PER_COUNT = 2
# Timeouts for a drive that reports no erase time, and for a drive whose time exceeds the maximum value.
_DEFAULT_TIMEOUT_S, _SLOWEST_S, _MARGIN_S = 12 * 3600, 96 * 3600, 600
# The kernel's timeout is a 32-bit number of milliseconds.
_MAX_TIMEOUT_S = 49 * 86400
THAW = (
    "most BIOSes freeze it; suspend and wake the machine, or unplug the drive and plug it in again "
    "while the machine runs"
)


@dataclass(frozen=True, slots=True)
class EraseTime:
    """The erase time reported by the drive.

    `minutes` is None if the drive reports none. With `is_more`, the erase takes longer than `minutes`, the
    drive's largest possible value.
    """

    minutes: int | None = None
    is_more: bool = False

    def __str__(self) -> str:
        if self.minutes is None:
            return "duration not reported"
        return f"{'more than ' * self.is_more}{self.minutes} minutes as reported by the drive"

    @property
    def seconds(self) -> float | None:
        """Return the expected duration, or None if unknown."""
        return None if self.minutes is None or self.is_more else 60.0 * self.minutes

    @property
    def timeout_s(self) -> int:
        """Return the timeout: the reported time plus one half, plus ten minutes."""
        if self.minutes is None:
            return _DEFAULT_TIMEOUT_S
        return min(max(90 * self.minutes, _SLOWEST_S * self.is_more) + _MARGIN_S, _MAX_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class AtaSecurity:
    """The security status.

    `is_supported` comes from word 82; `has_state` and the other bits from word 128. `has_password` means that
    a user password is set, which locks the drive at the next power cycle. `is_expired` means that too many
    wrong passwords were tried, `has_enhanced` that the drive supports the enhanced erase.
    """

    is_supported: bool = False
    has_state: bool = False
    has_password: bool = False
    is_locked: bool = False
    is_frozen: bool = False
    is_expired: bool = False
    has_enhanced: bool = False
    normal: EraseTime = EraseTime()
    enhanced: EraseTime = EraseTime()

    @property
    def has_only_enhanced(self) -> bool:
        """Return True if the drive reports a time only for the enhanced erase."""
        return self.has_enhanced and self.normal.minutes is None and self.enhanced.minutes is not None

    @property
    def erase_time(self) -> EraseTime:
        """Return the erase's time: normal, unless the drive reports a time for the enhanced erase only."""
        return self.enhanced if self.has_only_enhanced else self.normal

    @property
    def erase_description(self) -> str:
        """Return a description of the erase."""
        kind = "enhanced, " if self.has_only_enhanced else ""
        return f"ATA SECURITY ERASE UNIT ({kind}password {PASSWORD}), {self.erase_time}"


def decode_security(raw: bytes) -> AtaSecurity:
    """Decode the security status from the data of IDENTIFY DEVICE.

    Raises BadInput if the data is too short.
    """
    if len(raw) < _PAGE_BYTES:
        raise BadInput(f"IDENTIFY DEVICE of {len(raw)} bytes")

    def read_word(number: int) -> int:
        return int.from_bytes(raw[2 * number : 2 * number + 2], "little")

    # Words 82 and 85 are valid if bits 15:14 of words 83 and 87 are 01.
    state = read_word(128)
    is_on = bool(read_word(85) & 1 << 1) and read_word(87) >> 14 == 1
    return AtaSecurity(
        is_supported=bool(read_word(82) & 1 << 1) and read_word(83) >> 14 == 1,
        has_state=bool(state & _SUPPORTED),
        has_password=is_on or bool(state & _ENABLED),
        is_locked=bool(state & _LOCKED),
        is_frozen=bool(state & _FROZEN),
        is_expired=bool(state & _EXPIRED),
        has_enhanced=bool(state & _HAS_ENHANCED),
        normal=_decode_erase_time(read_word(89)),
        enhanced=_decode_erase_time(read_word(90)),
    )


def _decode_erase_time(word: int) -> EraseTime:
    """Decode an erase time in units of two minutes: 8 bits, or 15 bits if bit 15 is set.

    The maximum value means "longer".
    """
    is_long = bool(word & _IS_LONG)
    most = _LONG_LONGEST if is_long else _LONGEST
    count = word & most
    if not count:
        return EraseTime()
    # The maximum means longer than the previous value.
    is_more = count == most
    return EraseTime(_MINUTES_PER_COUNT * (count - is_more), is_more)


def find_security_refusal(security: AtaSecurity, name: str) -> str | None:
    """Return the reason not to erase a drive with this security status, or None."""
    if not security.is_supported:
        return f"{name} has no security feature set (IDENTIFY word 82 bit 1 is 0)"
    if not security.has_state:
        return f"{name} has a security feature set by IDENTIFY word 82, and none by word 128 (bit 0)"
    if security.is_frozen:
        return f"the security of {name} is frozen until a power cycle (IDENTIFY word 128 bit 3): {THAW}"
    if security.is_locked:
        return f"{name} is locked with an unknown password (IDENTIFY word 128 bit 2)"
    if security.has_password:
        return f"{name} already has an unknown password (IDENTIFY word 128 bit 1)"
    if security.is_expired:
        return (
            f"{name} received too many wrong passwords (IDENTIFY word 128 bit 4) and accepts none until "
            "a power cycle"
        )
    return None


def make_password_page(*, is_enhanced: bool = False) -> bytes:
    """Return the data sector of a security command: the control word and the user password.

    With all other control bits 0, SET PASSWORD uses the level "high", at which a master password also unlocks
    the drive, and ERASE UNIT does a normal erase.
    """
    first = _ENHANCED if is_enhanced else 0
    head = first.to_bytes(2, "little") + PASSWORD.encode().ljust(_PASSWORD_BYTES, b"\0")
    return head.ljust(_PAGE_BYTES, b"\0")


def format_unlock_commands(name: str) -> str:
    """Return the commands that unlock a drive left with the password."""
    user = "hdparm --user-master u"
    return (
        f"{user} --security-unlock {PASSWORD} /dev/{name} (where it is locked), then "
        f"{user} --security-disable {PASSWORD} /dev/{name}"
    )
