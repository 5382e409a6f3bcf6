"""Protect disks from destruction by mistake: facts, obstacles, budgets."""
