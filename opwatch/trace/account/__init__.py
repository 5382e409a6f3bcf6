"""What follows from a tracer's counters besides figures: what was lost, whether a disk stands still."""
