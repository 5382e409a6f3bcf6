"""The simulated SSD as a block device: a FUSE server with the FTL behind it, under a loop device."""
