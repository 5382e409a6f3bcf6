"""One look at a drive: what it answered, as it was read, and what follows from that."""
