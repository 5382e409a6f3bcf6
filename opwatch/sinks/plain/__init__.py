"""Colour and shape of plain lines."""
