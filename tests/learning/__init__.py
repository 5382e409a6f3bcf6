"""Learning what attributes count from many drives, and judging what was learned on drives kept back."""
