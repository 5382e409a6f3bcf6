"""Observations for other programs, in formats that are complete only at the end."""
