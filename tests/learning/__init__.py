"""Learn the units of attributes from many drives, and validate the rules on held-out drives."""
