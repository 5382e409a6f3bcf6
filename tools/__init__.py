"""The commands: one file each, and the command line that binds them."""
