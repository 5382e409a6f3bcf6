"""`opwatch counters --latency`: a drive's own latency."""
