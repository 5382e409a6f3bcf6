"""A poll of a drive: raw answers, and the counters computed from them."""
