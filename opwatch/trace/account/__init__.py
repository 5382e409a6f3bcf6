"""Lost requests and stalled disks, derived from a tracer's counters."""
