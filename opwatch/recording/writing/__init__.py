"""Writing a recording."""
