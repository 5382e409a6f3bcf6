"""The last minutes of a watch, as a sequence of short recordings; the oldest are removed."""
