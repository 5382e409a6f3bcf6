"""Test random stacks of block devices: compare check, audit and audit --prove with files in memory."""
