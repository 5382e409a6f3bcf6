"""Colours, columns and sparklines of plain lines."""
