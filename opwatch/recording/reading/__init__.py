"""Reading recordings from any source as the entries of a run."""
