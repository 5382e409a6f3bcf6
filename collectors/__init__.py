"""Collectors of raw data, one file per source. Collectors read absolute values and derive nothing."""
