"""Whose the requests are, held against the kernel's own account."""
