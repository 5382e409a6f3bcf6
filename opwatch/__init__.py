"""Block-layer tracing, write amplification and TRIM audit for SSDs."""

__version__ = "0.1.0.dev0"
# Of all that is written as JSON: within it, keys are only ever added.
SCHEMA = "opwatch/1"
