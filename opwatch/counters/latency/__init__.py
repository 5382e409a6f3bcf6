"""Latency that a drive reports, and the remaining transport time between host and drive."""
