"""Recordings whose structure was made to cost much, and what reading them costs."""
