"""Compare two or more runs: which differences are real, and which are undetermined."""
