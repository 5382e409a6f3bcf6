"""Start parsing the kernel's BTF early.

Parsing takes as long as the rest of loading and needs no other data. This module imports nothing else.
"""

from __future__ import annotations

import _thread


def preload_types() -> None:
    """Parse the types once in a background thread, for which the loader waits."""
    try:
        from opwatch._native import read_types
    except ImportError:
        return  # The loader reports the missing extension.
    _thread.start_new_thread(read_types, ())
