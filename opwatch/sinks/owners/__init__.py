"""Owners of requests, as text and as JSON."""
