"""The simulated SSD as a block device: a FUSE server with the FTL, and a loop device on its file."""
