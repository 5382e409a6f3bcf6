"""Journals of sweeps, and what lies beside them."""
