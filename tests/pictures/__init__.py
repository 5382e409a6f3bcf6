"""`make pictures`: what README and docs show, drawn anew from a run on a simulated SSD."""
