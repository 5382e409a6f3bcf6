"""What a drive says of its own latency, and what that leaves for the way to it."""
