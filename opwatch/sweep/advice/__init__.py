"""How much over-provisioning a workload needs, from the levels of a sweep."""
