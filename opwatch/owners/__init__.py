"""Whose the requests are: by control group or by process, beside the totals of a disk."""
