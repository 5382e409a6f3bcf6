"""Runs, as several commands make them: watches, recordings, audits, and waiting for their end."""
