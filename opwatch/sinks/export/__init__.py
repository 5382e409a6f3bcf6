"""Observations for other programs, in forms that are complete only when all of them are there."""
