"""Whose the requests were, in words and in JSON."""
