"""The kernel's types, which the discard programs are loaded with. Reading them takes as long as the rest of
loading, and needs nothing of what an audit has to know first. Nothing else is imported here."""

from __future__ import annotations

import _thread


def read_ahead() -> None:
    """Begin to read them in a thread that nobody waits for but who needs them: they are read once."""
    try:
        from opwatch._native import read_types
    except ImportError:
        return  # Whoever loads the programs says what is missing.
    _thread.start_new_thread(read_types, ())
