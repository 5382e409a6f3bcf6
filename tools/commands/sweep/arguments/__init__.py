"""Options of sweeps, and what they are made into."""
