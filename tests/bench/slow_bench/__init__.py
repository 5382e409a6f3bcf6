"""The cost per request of `--slow`."""
