"""The exporter: an HTTP server for metrics of this machine's disks, and what it reads."""
