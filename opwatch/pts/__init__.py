"""Tests of SNIA's Performance Test Specification: their loads and their results."""
