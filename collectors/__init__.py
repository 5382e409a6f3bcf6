"""One file per source of truth: each reads absolute values and derives nothing."""
