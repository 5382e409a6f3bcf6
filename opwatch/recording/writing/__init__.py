"""A recording while it is made."""
