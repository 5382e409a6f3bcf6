"""Published experiments: their documents, their additions to a sweep's document, and tables of both."""
