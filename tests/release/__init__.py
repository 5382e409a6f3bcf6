"""Checks of what `make release` builds."""
