"""Options of sweeps, and their conversion into requests."""
