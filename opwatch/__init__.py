"""Block-layer tracing, write amplification and TRIM audit for SSDs."""

__version__ = "0.1.0.dev0"
# The version of all that is written as JSON: as long as it stays, keys are only added.
SCHEMA = "opwatch/1"
