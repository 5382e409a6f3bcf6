"""Optional packages, and the command that installs one for the Python that runs us.

opwatch itself is on no package index: a command that installs `opwatch` by name would install another
project's code.
"""

from __future__ import annotations

import os
import shlex
import sys

# setup.py has the same, as extras.
DUCKDB = "duckdb>=2,<3"
TEXTUAL = "textual>=8,<9"


def install_command(requirement: str) -> str:
    """Return the shell command that adds a package where this Python finds it."""
    sudo = "" if os.access(sys.prefix, os.W_OK) else "sudo "
    return f"{sudo}{shlex.quote(sys.executable)} -m pip install {shlex.quote(requirement)}"
