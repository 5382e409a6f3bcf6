"""Keys typed while a run prints on a terminal, outside the dashboard."""
