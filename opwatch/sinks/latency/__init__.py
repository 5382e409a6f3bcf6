"""A drive's own latency for people and as JSON, and beside it what the host saw."""
