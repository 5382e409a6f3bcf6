"""The command line, and the commands in one file each."""
