"""Recordings built to be expensive, and the measured cost of reading them."""
