"""A report as one page of HTML, as Markdown and as JSON."""
