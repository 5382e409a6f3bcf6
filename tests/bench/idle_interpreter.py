"""An interpreter that imports modules and waits: the least memory of a Python program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# What an exporter that polls drives imports.
_EXPORTER = (
    "opwatch.tools.exporter.launch",
    "opwatch.collectors.block.blk",
    "opwatch.collectors.firmware.counting",
    "opwatch.counters.catalogue.families",
)
_LIST = """
import sys
from opwatch.tools.exporter.lean import DeferredModule
sys.modules["inspect"] = DeferredModule("inspect")
import {modules}
own = sys.stdlib_module_names
print(*(name for name in sys.modules if name.partition(".")[0] in own and name != "inspect"))
"""


def list_standard_modules() -> list[str]:
    """Return the modules of the standard library that an exporter with drives imports."""
    code = _LIST.format(modules=", ".join(_EXPORTER))
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@contextmanager
def run_idle_interpreter(modules: Sequence[str]) -> Iterator[int]:
    """Yield the PID of an interpreter that has imported these modules."""
    code = "import sys; print(flush=True); sys.stdin.read()"
    if modules:
        # The exporter leaves out inspect, see lean.py.
        code = (
            f"import sys; sys.modules['inspect'] = type(sys)('inspect'); import {', '.join(modules)}; {code}"
        )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.kill()
