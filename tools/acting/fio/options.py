"""Query the installed fio for options, because builds differ within a version."""

from __future__ import annotations

from opwatch.errors import OpwatchError
from opwatch.host.process import run_tool

_PROBE_S = 10
SPRANDOM = "sprandom"


def has_option(name: str, fio: str = "fio") -> bool:
    """Return whether fio has an option.

    fio describes known options, prints an error for unknown ones, and exits with 0 in both cases.
    """
    try:
        words = run_tool([fio, f"--cmdhelp={name}"], _PROBE_S)
    except OpwatchError:
        return False
    return words.strip().startswith(name)


def find_sprandom_refusal(fio: str = "fio") -> str | None:
    """Return the reason why fio cannot fill drives with SPRandom here, or None."""
    if has_option(SPRANDOM, fio):
        return None
    return f"fio is not installed, or has no {SPRANDOM} (fio --cmdhelp={SPRANDOM}): it needs fio 3.41"
