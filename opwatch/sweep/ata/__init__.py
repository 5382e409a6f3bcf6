"""ATA drives: their features, and the commands that lower the highest address."""
