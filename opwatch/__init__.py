"""Block-layer tracing, write amplification and TRIM audit for SSDs."""

from typing import Final

__version__ = "0.1.0.dev0"
# The version of all JSON output. Within a version, keys are only added.
SCHEMA: Final = "opwatch/1"
