"""Variants of published experiments that take too long for a test."""
