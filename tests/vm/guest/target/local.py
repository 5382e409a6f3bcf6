"""opwatch with one refusal removed: python -m tests.vm.guest.target.local sweep ...

The guard refuses a drive on a network because other hosts may reach the drive too. The target only
listens on the guest's own 127.0.0.1.
"""

from __future__ import annotations

import sys

from opwatch.collectors.guard import disk_facts
from opwatch.tools.cli import main

if __name__ == "__main__":
    others = tuple(name for name in disk_facts._NETWORKS if name != "nvme-tcp")
    vars(disk_facts)["_NETWORKS"] = others
    sys.exit(main())
