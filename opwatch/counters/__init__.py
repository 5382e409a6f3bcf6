"""Firmware counters: the bytes a drive reports as written, with the proof of each unit. Does no I/O."""
