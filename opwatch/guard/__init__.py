"""What stands between a command and the destruction of a disk: facts, reasons against it, budgets."""
