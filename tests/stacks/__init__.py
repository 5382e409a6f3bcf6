"""Random stacks of block devices: what check, audit and audit --prove say, held against files in memory."""
