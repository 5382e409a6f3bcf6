"""Published experiments that have no levels: their documents, and tables out of these."""
