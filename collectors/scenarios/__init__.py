"""Published experiments on file systems that are there."""
