"""Two runs or more: which differences are real, and of which nothing can be told."""
