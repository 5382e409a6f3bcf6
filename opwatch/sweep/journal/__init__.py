"""The journal of a sweep: its request and progress, so that the sweep can resume after any interruption."""
