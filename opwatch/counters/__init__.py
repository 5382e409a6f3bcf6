"""Firmware counters: what a drive says it wrote, in bytes, with the proof of each unit. No I/O in here."""
