"""`make pictures`: draw the pictures of README and docs from runs on a simulated SSD."""
