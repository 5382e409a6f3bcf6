"""Published experiments from the words to the document."""
