"""What a dashboard of four disks costs."""
