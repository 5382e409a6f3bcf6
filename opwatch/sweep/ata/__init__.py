"""ATA drives: what they offer, and the commands that lower their highest address."""
