"""opwatch as it is, but for one refusal: python -m tests.vm.guest.target.local sweep ...

The target is reached over a network, which the guard refuses because other hosts may reach it as well. This
one listens on 127.0.0.1 of this guest alone."""

from __future__ import annotations

import sys

from opwatch.collectors.guard import looking
from opwatch.tools.cli import main

if __name__ == "__main__":
    others = tuple(name for name in looking._NETWORKS if name != "nvme-tcp")
    vars(looking)["_NETWORKS"] = others
    sys.exit(main())
