"""A sweep of over-provisioning levels: which there are, what is done at each, what came out of it."""
