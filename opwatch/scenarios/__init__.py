"""Repeat published experiments, and compare the results with the published ones."""
