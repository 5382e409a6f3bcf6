"""Write docs/support-matrix.md from kernels.toml and devices.toml.

python3 -m tests.vm.report.matrix [--write]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tests.vm import config, devices
from tests.vm.archive import arm64
from tests.vm.config import CHECKOUT, Config, Kernel
from tests.vm.devices import Device

PAGE = CHECKOUT / "docs" / "support-matrix.md"


def _format_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *(list(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_tested(kernel: Kernel) -> str:
    return ", ".join(name.removeprefix("test_") for name in kernel.files) or "everything"


def render_page(known: Config, recipes: Iterable[Device]) -> str:
    """Return the text of the page."""
    kernels = _format_table(
        ("kernel", "source", "tested", "CI tier"),
        ((k.name, k.distribution, _format_tested(k), k.tier or "none; run manually") for k in known.kernels),
    )
    lacks = [f"- {k.name}: {why} (`{what}`)" for k in known.kernels for what, why in k.lacks.items()]
    optional = [f"- {k.name}: {k.optional}" for k in known.kernels if k.optional]
    drivers = _format_table(("device", "description"), ((f"`{d.name}`", d.what) for d in recipes))
    major, minor = known.qemu.minimum
    other = arm64.read_config()
    return f"""# Support matrix

Written by `python3 -m tests.vm.report.matrix --write` from `tests/vm/kernels.toml` and
`tests/vm/devices.toml`; a test compares it. opwatch probes features at run time, so an unlisted kernel
may work, but is not tested.

## Kernels

{kernels}

{other.kernel.name} ({other.kernel.distribution}) has a smoke test, `make test-arm64`: the BPF programs
load, and the writes to a null_blk device are counted exactly.

Every kernel runs unmodified, as built by its distribution, in QEMU {major}.{minor} or later.
Tests skip the following features on these kernels; any other skip is a failure:

{chr(10).join(lacks) or "- nothing"}

These kernels may become unavailable; their tests are then skipped with this reason:

{chr(10).join(optional) or "- nothing"}

## Devices

{drivers}

The tests create these in the guest: null_blk of any shape, scsi_debug with errors, device
mapper (linear, crypt, delay, flakey, thin), md RAID 0, 1 and 10, loop, zram.
"""


def main(arguments: list[str]) -> int:
    """Return 0 if the page is up to date or was written, else 1."""
    page = render_page(config.read_config(), devices.read_devices().values())
    if "--write" in arguments:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page)
        return 0
    if PAGE.is_file() and PAGE.read_text() == page:
        return 0
    print(f"{PAGE} is out of date: python3 -m tests.vm.report.matrix --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
