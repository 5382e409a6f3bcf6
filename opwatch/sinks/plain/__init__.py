"""Cells of tables in plain lines."""
