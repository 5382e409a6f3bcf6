"""Parse fio's output: JSON and JSON+ reports, and logs."""
