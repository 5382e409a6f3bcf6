"""Client of opwatch-broker, which traces and reads drives' pages for processes without privileges."""
