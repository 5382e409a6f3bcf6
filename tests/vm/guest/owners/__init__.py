"""Owners of requests, compared with the kernel's own accounting."""
