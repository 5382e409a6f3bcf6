"""What `--slow` adds to every request."""
