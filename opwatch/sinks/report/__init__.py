"""A report as one HTML page, as Markdown and as JSON."""
