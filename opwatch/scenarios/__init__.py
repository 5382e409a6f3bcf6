"""Published experiments, repeated: what their authors did, and what comes of it here."""
