"""Which options the fio of this machine has. It is asked: a version tells nothing of what was left out."""

from __future__ import annotations

from opwatch.errors import OpwatchError
from opwatch.host.process import run_tool

_PROBE_S = 10
SPRANDOM = "sprandom"


def has_option(name: str, fio: str = "fio") -> bool:
    """Whether this fio has an option. It tells of those that it has; of what it does not know it says that
    there is no such command, and ends with 0 all the same."""
    try:
        words = run_tool([fio, f"--cmdhelp={name}"], _PROBE_S)
    except OpwatchError:
        return False
    return words.strip().startswith(name)


def sprandom_refusal(fio: str = "fio") -> str | None:
    """Why drives cannot be filled by it here; None where they can."""
    if has_option(SPRANDOM, fio):
        return None
    return f"fio is not installed, or has no {SPRANDOM} (fio --cmdhelp={SPRANDOM}): that came with 3.41"
