"""The highest addresses of ATA drives: asked, lowered for a level, and raised again."""
