"""Erase ATA drives by SECURITY ERASE UNIT, which needs a temporary password."""
