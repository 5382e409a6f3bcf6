"""Where derived samples go: lines, JSON."""

SCHEMA = "opwatch/1"
