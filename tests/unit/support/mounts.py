"""Mounts and swap of the machine in tests/unit/support/sysfs.py, as in /proc."""

from __future__ import annotations

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
30 27 8:1 / /boot rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw
31 1 0:45 /@ / rw - btrfs /dev/mapper/cryptroot rw,subvolid=256
32 1 104:0 / /mnt/two\040words\134 rw - xfs /dev/cciss/c0d0 rw
33 1 0:50 / /net rw - nfs4 server:/export rw
"""
SWAPS = """Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/sdb1                               partition\t524284\t\t0\t\t-2
/swap\\040file                           file\t\t524284\t\t0\t\t-3
"""
