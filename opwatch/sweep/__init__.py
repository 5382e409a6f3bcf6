"""A sweep of over-provisioning levels: the levels, the steps at each level, and the results."""
