"""Compact encodings of values."""
