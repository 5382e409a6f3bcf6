"""Find the causes of slow requests, with evidence. Pure."""
