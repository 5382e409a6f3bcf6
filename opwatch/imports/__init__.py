"""Convert the results of other programs into the entries of a run."""
