"""Block-layer tracing, write amplification and TRIM audit for SSDs."""

__version__ = "0.1.0.dev0"
# The version of all JSON output. Within a version, keys are only added.
SCHEMA = "opwatch/1"
