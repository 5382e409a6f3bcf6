"""The cost of a dashboard of four disks."""
