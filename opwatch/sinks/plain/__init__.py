"""Colour, columns and shape of plain lines."""
