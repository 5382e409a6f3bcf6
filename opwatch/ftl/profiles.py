"""Drive profiles: data files with a drive's geometry, policies and timing."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from importlib import resources
from pathlib import Path

from opwatch.errors import BadInput, UsageError
from opwatch.foreign import read_bytes
from opwatch.ftl.drive import Drive, GcFrontier, Policy, SlcFull, Tie, TrimMode
from opwatch.settings import parse_toml

_ENUMS: dict[str, type[IntEnum]] = {
    "policy": Policy,
    "gc_frontier": GcFrontier,
    "trim_mode": TrimMode,
    "slc_full": SlcFull,
    "tie": Tie,
}
# ow_service_create() refuses 0 for these.
_NONZERO_KEYS = (
    *("dies", "channels", "planes", "page_bytes", "block_bytes"),
    *("channel_bytes_per_s", "host_bytes_per_s", "throttle_permille"),
)
# Sizes that follow the drive when a profile is scaled to another capacity.
_SCALED_KEYS = ("user_bytes", "physical_bytes", "slc_bytes")


@dataclass(frozen=True, slots=True)
class Profile:
    """A named drive: settings of struct ow_ftl_config and of struct ow_service_config."""

    name: str
    description: str
    source: str
    drive: Mapping[str, int]
    timing: Mapping[str, int]

    def scale_to(self, user_bytes: int) -> Profile:
        """Return the same drive at another capacity, with the same spare ratio, cache ratio and speeds.

        Steady state takes the same number of drive writes at any capacity, so a small drive gives the same
        results in less time.
        """
        ratio = user_bytes / self.drive["user_bytes"]
        unit = self.drive.get("iu_bytes", 4096)
        drive = dict(self.drive)
        for key in _SCALED_KEYS:
            if key in drive:
                drive[key] = round(drive[key] * ratio / unit) * unit
        # Without this key the FTL chooses a superblock size for the new capacity. The original size would be
        # too large a part of a small drive.
        drive.pop("superblock_bytes", None)
        return replace(self, drive=drive)

    def with_user_bytes(self, user_bytes: int) -> Profile:
        """Return the same flash with a smaller size visible to the host: more over-provisioning."""
        return replace(self, drive=dict(self.drive) | {"user_bytes": user_bytes})

    def has_parts_of(self, other: Profile) -> bool:
        """Return whether both have the same parts and policies, so that they differ in size at most.

        Throttling and endurance are left out: the first begins late, and the second has no effect on speed.
        """
        return _list_parts(self) == _list_parts(other)

    def create_drive(self) -> Drive:
        """Create the drive. Raises UsageError for impossible settings or timing."""
        try:
            return Drive(self.drive, self.timing)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            raise UsageError(f"drive profile {self.name}: {error.strerror}") from error


def _list_parts(profile: Profile) -> tuple[dict[str, int], dict[str, int]]:
    left_out = {*_SCALED_KEYS, "endurance_cycles"}
    drive = {key: value for key, value in profile.drive.items() if key not in left_out}
    timing = {key: value for key, value in profile.timing.items() if not key.startswith("throttle_")}
    return drive, timing


def list_profiles() -> list[str]:
    """Return the names of the profiles that come with opwatch."""
    folder = resources.files("opwatch.ftl") / "profiles"
    return sorted(file.name.removesuffix(".toml") for file in folder.iterdir())


def load_profile(name: str) -> Profile:
    """Load a profile by name, or from a path that ends in .toml."""
    if name.endswith(".toml"):
        try:
            return _parse_raw(Path(name).stem, read_bytes(Path(name)))
        except OSError as error:
            raise UsageError(f"cannot read the drive profile {name}: {error.strerror}") from error
        except BadInput as error:
            raise UsageError(f"drive profile {name}: {error}") from error
    if name not in list_profiles():
        known = ", ".join(list_profiles())
        raise UsageError(f"unknown drive profile {name}; available: {known}, or a .toml file")
    return parse_profile(name, (resources.files("opwatch.ftl") / "profiles" / f"{name}.toml").read_text())


def parse_profile(name: str, text: str) -> Profile:
    """Parse a profile from TOML text. Raises UsageError with the offending key."""
    return _parse_raw(name, text.encode("utf-8", "replace"))


def _parse_raw(name: str, raw: bytes) -> Profile:
    try:
        data = parse_toml(raw, f"drive profile {name}")
    except BadInput as error:
        raise UsageError(str(error)) from error
    unknown = set(data) - {"description", "source", "drive", "timing"}
    if unknown or not isinstance(data.get("drive"), dict):
        wrong = ", ".join(sorted(unknown)) or "[drive] is missing"
        raise UsageError(f"drive profile {name}: {wrong}")
    timing = data.get("timing", {})
    if not isinstance(timing, dict):
        raise UsageError(f"drive profile {name}: timing must be a table")
    for key in _NONZERO_KEYS:
        if timing.get(key) == 0:
            raise UsageError(f"drive profile {name}: timing.{key} must be above 0")
    drive = {key: _parse_number(name, key, value) for key, value in data["drive"].items()}
    if not drive.get("user_bytes") or drive.get("iu_bytes") == 0:
        raise UsageError(
            f"drive profile {name}: user_bytes is required, and neither it nor iu_bytes may be 0"
        )
    return Profile(
        name,
        str(data.get("description", "")),
        str(data.get("source", "")),
        drive,
        {key: _parse_number(name, key, value) for key, value in timing.items()},
    )


def _parse_number(name: str, key: str, value: object) -> int:
    kind = _ENUMS.get(key)
    if kind is not None and isinstance(value, str):
        try:
            return kind[value.upper().replace("-", "_")]
        except KeyError:
            known = ", ".join(member.name.lower().replace("_", "-") for member in kind)
            raise UsageError(f"drive profile {name}: {key} is {value}, not one of {known}") from None
    if isinstance(value, int) and 0 <= value < 1 << 63:
        return int(value)
    raise UsageError(f"drive profile {name}: {key} must be a whole number, 0 or above, not {value!r:.60}")
