"""Tests of SNIA's Performance Test Specification: what each does, and what it comes to."""
