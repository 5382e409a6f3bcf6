"""What fio said, shown."""
