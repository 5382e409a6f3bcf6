"""Completion scripts of bash, zsh and fish: one set of tables from the parsers, and a function per shell."""
