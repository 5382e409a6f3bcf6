"""TRIM: check, predict and audit discards through all layers, and estimate stale data."""
