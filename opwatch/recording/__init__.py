"""The `.opw` file: the samples and events of a run, for later analysis."""
