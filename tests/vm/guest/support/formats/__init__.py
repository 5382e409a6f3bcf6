"""What no tool of Debian 12 formats."""
