"""A recording, whoever made it, as the entries of its run."""
