"""What other programs measured, as entries of a run."""
