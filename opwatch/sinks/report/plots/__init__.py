"""Plots of a report: axes, lines and words around them."""
