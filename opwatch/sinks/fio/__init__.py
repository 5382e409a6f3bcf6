"""Output of fio's own measurements."""
