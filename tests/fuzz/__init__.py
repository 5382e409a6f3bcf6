"""Fuzz targets: long runs manually, short runs in the unit tests."""
