"""Decide when a drive is in steady state: by SNIA's rule and by a stricter rule, from the data both need."""
