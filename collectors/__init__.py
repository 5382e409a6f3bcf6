"""Collectors of raw data, one file per source. They read absolute values, and derive and change nothing."""
