"""Tests of drivers that run in a guest, and the recipes they share."""
