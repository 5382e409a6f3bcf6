"""Published experiments in more variants than a test has time for."""
