"""Entries of a run as bytes, and back."""
