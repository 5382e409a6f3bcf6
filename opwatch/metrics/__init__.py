"""Metrics: one table of families, their samples, and three exposition formats."""
