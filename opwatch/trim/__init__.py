"""Trims: why they get lost, on which layers they depend, what can be foretold of them."""
