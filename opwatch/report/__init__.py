"""What a report of recordings shows, and which changes in them have a name. Pure."""
