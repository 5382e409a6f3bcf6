"""Published experiments: their documents, what they add to that of a sweep, and tables out of these."""
