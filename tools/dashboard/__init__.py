"""The dashboard in a terminal, by textual: an extra of the package, imported when a dashboard is shown."""
