"""Fuzz targets: run by hand for long, by the unit tests for a moment."""
