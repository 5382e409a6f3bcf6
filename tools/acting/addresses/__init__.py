"""The highest addressable sector of ATA drives: read, lowered for a sweep level, and restored."""
