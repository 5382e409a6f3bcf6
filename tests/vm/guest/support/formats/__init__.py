"""Formats that no tool in Debian 12 can create."""
