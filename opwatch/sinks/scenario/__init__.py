"""Published experiments: documents, lines and pages."""
