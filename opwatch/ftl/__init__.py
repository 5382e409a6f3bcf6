"""The simulated SSD: the C core, its models and its drive profiles."""
