"""ATA drives erased by their own command, which takes a password that must not stay."""
