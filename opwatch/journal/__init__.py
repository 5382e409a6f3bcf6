"""The journal of a sweep: its request and progress, for resuming after any interruption."""
