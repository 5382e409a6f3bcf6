"""Actions on drives: all code that changes a drive or loads it. Collectors only read."""
