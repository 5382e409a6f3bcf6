"""Where derived samples go: lines, JSON."""
