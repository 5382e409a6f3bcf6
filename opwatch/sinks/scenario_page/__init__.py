"""Published experiments as sections of a page: verdicts, plots and tables, from kept documents."""
