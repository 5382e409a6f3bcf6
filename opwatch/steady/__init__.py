"""When a drive has become steady: SNIA's rule, ours, and what each of them needs to know."""
