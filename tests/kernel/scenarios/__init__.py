"""Published experiments on file systems that the tests create."""
