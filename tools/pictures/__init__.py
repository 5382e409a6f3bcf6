"""Pages as pictures."""
