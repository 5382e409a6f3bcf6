"""An ATA drive's security feature set: what IDENTIFY DEVICE says of it, and the commands by which all that is
on the drive is erased. Pure."""

from __future__ import annotations

from opwatch.errors import BadInput
from opwatch.frozen import frozen

# No secret: whoever finds a drive that is locked by a sweep that was killed opens it with this.
PASSWORD = "opwatch"
_PAGE_BYTES, _PASSWORD_BYTES = 512, 32
_ENHANCED = 1 << 1
# Word 128 of IDENTIFY.
_SUPPORTED, _ENABLED, _LOCKED, _FROZEN, _EXPIRED, _HAS_ENHANCED = (1 << bit for bit in range(6))
_IS_LONG, _LONGEST, _LONG_LONGEST = 1 << 15, 0xFF, 0x7FFF
_MINUTES_PER_COUNT = 2
# How long a drive that tells no time is waited for, and one that tells that it takes longer than it can say.
_UNTOLD_S, _SLOWEST_S, _MARGIN_S = 12 * 3600, 96 * 3600, 600
# The kernel takes a time in 32 bits of milliseconds.
_MOST_S = 49 * 86400
THAW = (
    "most BIOSes do that, and a suspend of the machine and its wake-up, or unplugging the drive and plugging "
    "it in again while the machine runs, undoes it"
)


@frozen
class EraseTime:
    """How long an erase takes by the drive's own word. `minutes` is None where it tells nothing; `is_more`
    says that it takes longer than so many, which is the most that it can tell."""

    minutes: int | None = None
    is_more: bool = False

    def __str__(self) -> str:
        if self.minutes is None:
            return "in a time that it does not tell"
        return f"in {'more than ' * self.is_more}{self.minutes} minutes by its own word"

    @property
    def seconds(self) -> float | None:
        """How long to expect it to take, None where that cannot be known."""
        return None if self.minutes is None or self.is_more else 60.0 * self.minutes

    @property
    def patience_s(self) -> int:
        """How long to wait for it: a half more than it tells, and ten minutes."""
        if self.minutes is None:
            return _UNTOLD_S
        return min(max(90 * self.minutes, _SLOWEST_S * self.is_more) + _MARGIN_S, _MOST_S)


@frozen
class AtaSecurity:
    """`is_supported` by word 82; by word 128, which has the other bits, it `has_state`. `has_password` is a
    user's: it locks the drive once that was without power. `is_expired` says that too many wrong ones were
    tried, `has_enhanced` that it knows the other kind of erase, too."""

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
    def is_enhanced_alone(self) -> bool:
        """It tells a time for the enhanced erase, and none for the other one."""
        return self.has_enhanced and self.normal.minutes is None and self.enhanced.minutes is not None

    @property
    def time(self) -> EraseTime:
        """That of the erase that is done: the normal one wherever there is one."""
        return self.enhanced if self.is_enhanced_alone else self.normal

    @property
    def what(self) -> str:
        """The erase in words."""
        kind = "enhanced, " if self.is_enhanced_alone else ""
        return f"ATA SECURITY ERASE UNIT ({kind}by the password {PASSWORD}), {self.time}"


def decode_security(raw: bytes) -> AtaSecurity:
    """The security in the answer to IDENTIFY DEVICE. BadInput for less than there has to be."""
    if len(raw) < _PAGE_BYTES:
        raise BadInput(f"IDENTIFY DEVICE of {len(raw)} bytes")

    def word(number: int) -> int:
        return int.from_bytes(raw[2 * number : 2 * number + 2], "little")

    # Words 82 and 85 count where bits 14 and 15 of 83 and 87 are 01.
    state = word(128)
    is_on = bool(word(85) & 1 << 1) and word(87) >> 14 == 1
    return AtaSecurity(
        is_supported=bool(word(82) & 1 << 1) and word(83) >> 14 == 1,
        has_state=bool(state & _SUPPORTED),
        has_password=is_on or bool(state & _ENABLED),
        is_locked=bool(state & _LOCKED),
        is_frozen=bool(state & _FROZEN),
        is_expired=bool(state & _EXPIRED),
        has_enhanced=bool(state & _HAS_ENHANCED),
        normal=_time(word(89)),
        enhanced=_time(word(90)),
    )


def _time(word: int) -> EraseTime:
    """In units of two minutes, of 8 bits or, where bit 15 is set, of 15; the largest says that it is more."""
    is_long = bool(word & _IS_LONG)
    most = _LONG_LONGEST if is_long else _LONGEST
    count = word & most
    if not count:
        return EraseTime()
    # The largest stands for more than the one before it.
    is_more = count == most
    return EraseTime(_MINUTES_PER_COUNT * (count - is_more), is_more)


def security_refusal(security: AtaSecurity, name: str) -> str | None:
    """Why a drive is not erased, by what it says of its security; None where it is."""
    if not security.is_supported:
        return f"{name} has no security feature set (IDENTIFY word 82 bit 1 is 0)"
    if not security.has_state:
        return f"{name} has a security feature set (IDENTIFY word 82), and has none (word 128 bit 0)"
    if security.is_frozen:
        return (
            f"the security of {name} is frozen until it was without power (IDENTIFY word 128 bit 3): {THAW}"
        )
    if security.is_locked:
        return f"{name} is locked by a password (IDENTIFY word 128 bit 2), which is somebody's"
    if security.has_password:
        return f"{name} has a password already (IDENTIFY word 128 bit 1), which is somebody's"
    if security.is_expired:
        return (
            f"{name} was tried with too many wrong passwords (IDENTIFY word 128 bit 4), and takes none until "
            "it was without power"
        )
    return None


def password_page(*, is_enhanced: bool = False) -> bytes:
    """What goes with a command of security: the password, as that of the user, in a word whose bits are 0
    otherwise. That is a level of "high" where it is set, by which a master password opens the drive, too; and
    a normal erase."""
    first = _ENHANCED if is_enhanced else 0
    head = first.to_bytes(2, "little") + PASSWORD.encode().ljust(_PASSWORD_BYTES, b"\0")
    return head.ljust(_PAGE_BYTES, b"\0")


def by_hand(name: str) -> str:
    """The commands that open a drive which was left with the password."""
    user = "hdparm --user-master u"
    return (
        f"{user} --security-unlock {PASSWORD} /dev/{name} (where it is locked), then "
        f"{user} --security-disable {PASSWORD} /dev/{name}"
    )
