"""Published experiments, from the arguments to the document."""
