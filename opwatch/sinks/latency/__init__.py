"""A drive's own latency as text and as JSON, beside the latency that the host measured."""
