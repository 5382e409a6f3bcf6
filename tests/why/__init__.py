"""Runs in which the cause of the slow requests is known, as recordings."""
