"""Output of observations and results: text for people, documents for programs, and other formats."""
