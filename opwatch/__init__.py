"""Block-layer tracing, write amplification and TRIM audit for SSDs."""

__version__ = "0.1.0.dev0"
