"""Published experiments as sections of a page: verdicts, plots and tables, built from stored documents."""
