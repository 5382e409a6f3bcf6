"""What fio says that it did: its JSON and JSON+, its logs."""
