"""Published experiments on existing file systems."""
