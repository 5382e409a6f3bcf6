"""The dashboard in a terminal, drawn by textual, an optional dependency that is imported on demand."""
