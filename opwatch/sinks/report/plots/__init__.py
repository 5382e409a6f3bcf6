"""Plots of a report: axes, lines and labels."""
