"""The last minutes of a watch, as short recordings one after the other of which the oldest go."""
